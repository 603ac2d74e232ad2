"""The timeline of a monitor: bounded for any length, and what it keeps of the samples, against a plain loop."""

import random
from typing import Any

from run_benchmarks.results.samples.timeline import MAX_SERIES, MOST_BUCKETS, Timeline


def series(timeline: Timeline) -> dict[tuple[str, str], list[float | None]]:
    return {(metric, member): values for metric, member, values in timeline.values()}


def device(temperature: float, clock: float) -> dict[str, Any]:
    return {"index": 0, "temperature_c": temperature, "sm_clock_mhz": clock, "power_w": None}


def test_an_hour_has_as_many_values_as_a_chart_has_pixels_each_as_a_plain_loop_finds_it() -> None:
    draw = random.Random(5)
    samples = [(1_000_000 + second * 1000, draw.random() * 100) for second in range(3600)]
    timeline = Timeline()
    for at, value in samples:
        timeline.take("cpu", at, {"utilization_percent": value})
        timeline.take("accelerator", at, {"devices": [device(value, 2000 - value)]})
    found = series(timeline)
    width = timeline.bucket_ms
    assert width == 32_000 and timeline.started_ms == 1_000_000
    buckets: dict[int, list[float]] = {}
    for at, value in samples:
        buckets.setdefault((at - 1_000_000) // width, []).append(value)
    assert len(found["cpu", ""]) == len(buckets) <= MOST_BUCKETS
    for at, values in buckets.items():
        assert abs((found["cpu", ""][at] or 0) - sum(values) / len(values)) < 1e-9
        assert found["temperature", "0"][at] == max(values), "an average hides a peak"
        assert found["clock", "0"][at] == 2000 - max(values), "and a clock that fell"
    assert ("device_power", "0") not in found, "a device that reports none has no series"


def test_a_time_without_samples_is_a_gap_and_a_port_has_the_rate_between_its_records() -> None:
    timeline = Timeline()
    for second, sent in ((0, 0), (5, 10_000), (20, 40_000)):
        timeline.take("ports", 1000 * second, {"ports": {"eth0": {"tx_bytes": sent}, "mlx5_0/1": {"tx_bytes": sent}}})
    found = series(timeline)["send", ""]
    assert (found[5], found[20]) == (4000.0, 4000.0) and found[6:20] == [None] * 14


def test_bytes_that_several_ports_of_a_host_count_are_drawn_once() -> None:
    timeline = Timeline()
    for second, sent in ((0, 0), (5, 10_000)):
        ports = {name: {"tx_bytes": sent} for name in ("eth0", "bond0", "bond0.7")}
        timeline.take("ports", 1000 * second, {"ports": ports, **({} if second else {"upper": ["bond0", "bond0.7"]})})
    assert series(timeline)["send", ""][5] == 2000.0


def test_a_host_that_sends_names_without_end_or_no_numbers_costs_no_memory() -> None:
    timeline = Timeline()
    for number in range(3 * MAX_SERIES):
        timeline.take("power", number, {"meter": f"m{number}", "watts": 1.0})
    timeline.take("cpu", 10**15, {"utilization_percent": float("nan")})
    timeline.take("mem", 10**15, {"used_percent": "x"})
    assert len(series(timeline)) == MAX_SERIES
    assert all(len(values) <= MOST_BUCKETS for values in series(timeline).values())
