"""monitor.jsonl read back: figures, what was lacking, and files that are not whole."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.results.samples.summary import SummaryError, summarize


def line(source: str, t_ms: int = 1000, **fields: Any) -> str:
    return json.dumps({"schema": 1, "t_ms": t_ms, "monotonic_s": t_ms / 1000, "source": source, **fields}) + "\n"


def device(index: int, **changes: Any) -> dict[str, Any]:
    fields = {
        "index": index,
        "utilization_percent": 80.0,
        "memory_used_bytes": 10,
        "memory_total_bytes": 100,
        "temperature_c": 50,
        "power_w": 300.0,
        "sm_clock_mhz": 1700,
        "memory_clock_mhz": 3000,
        "throttle_reasons": [],
        "ecc_corrected": 0,
        "ecc_uncorrected": None,
    }
    return fields | changes


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "monitor.jsonl"
    path.write_text(
        line("monitor", 1000, start={"interval_s": 1.0, "vendor": "nvidia", "pid": 7})
        + line("power", 1001, meter="rapl", unavailable="the kernel offers none")
        + line("cpu", 2000, values={"utilization_percent": 10.0})
        + line("cpu", 3000, values={"utilization_percent": 40.0})
        + line("mem", 3000, values={"used_percent": 30.0, "used_bytes": 300, "total_bytes": 1000})
        + line("power", 3000, values={"meter": "ipmi", "watts": 400.0, "joules": 0.0, "method": "integrated power"})
        + line("power", 4000, values={"meter": "ipmi", "watts": 500.0, "joules": 450.0, "method": "integrated power"})
        + line("accelerator", 4000, values={"devices": [device(1), device(0, energy_j=1.0)]})
        + line("accelerator", 4500, error="Late: no answer")
        + line(
            "accelerator",
            5000,
            values={
                "devices": [
                    {**dict.fromkeys(device(1)), "index": 1, "error": "fell off the bus"},
                    device(0, energy_j=3.0, temperature_c=60, power_w=None, throttle_reasons=["sw_power_cap"]),
                ]
            },
        )
    )
    return path


OWN = {"reason": "SIGTERM", "lateness_ms": {"p50": 0.1, "p95": 0.2, "max": 0.3}, "cpu_percent_of_core": 0.2}


def test_figures(log: Path) -> None:
    log.write_text(log.read_text() + line("monitor", 6000, summary=OWN))
    summary = summarize(log)
    assert (summary.vendor, summary.interval_s) == ("nvidia", 1.0)
    assert (summary.started_ms, summary.ended_ms) == (1000, 6000)
    assert (summary.samples, summary.complete, summary.reason) == (2, True, "SIGTERM")
    assert (summary.cpu_percent.mean, summary.cpu_percent.max) == (25.0, 40.0)
    assert (summary.memory_percent.max, summary.memory_used_bytes.max, summary.memory_total_bytes) == (30.0, 300, 1000)
    ipmi = summary.power["ipmi"]
    assert (ipmi.watts.mean, ipmi.watts.max, ipmi.joules, ipmi.method) == (450.0, 500.0, 450.0, "integrated power")
    assert summary.unavailable == {"power/rapl": "the kernel offers none"}
    assert summary.errors == {"accelerator": ["Late: no answer"]}
    assert summary.lateness_ms == {"p50": 0.1, "p95": 0.2, "max": 0.3}
    assert summary.monitor_cpu_percent == 0.2


def test_devices_apart(log: Path) -> None:
    first, second = summarize(log).devices
    assert (first.index, second.index) == (0, 1)
    assert (first.temperature_c.mean, first.temperature_c.max) == (55.0, 60)
    assert (first.power_w.mean, first.power_w.count) == (300.0, 1), "a missing value is not a zero"
    assert (first.energy_j, first.memory_total_bytes) == (3.0, 100)
    assert (first.ecc_corrected, first.ecc_uncorrected) == (0, None)
    assert (first.throttled, first.samples) == ({"sw_power_cap": 1}, 2)
    assert second.errors == ["fell off the bus"]
    assert second.utilization_percent.count == 1


def test_an_idle_device_is_held_by_nothing_else(log: Path) -> None:
    held = ["applications_clocks_setting"]
    for reasons in ([*held, "gpu_idle"], ["gpu_idle"], held):
        log.write_text(
            log.read_text() + line("accelerator", 6000, values={"devices": [device(0, throttle_reasons=reasons)]})
        )
    assert summarize(log).devices[0].throttled == {"sw_power_cap": 1, "gpu_idle": 2, held[0]: 1}


def test_a_torn_last_line_costs_that_line(log: Path) -> None:
    whole = log.read_text()
    log.write_text(whole + line("cpu", 7000, values={"utilization_percent": 99.0})[:-20])
    summary = summarize(log)
    assert (summary.damaged_lines, summary.samples, summary.complete) == (1, 2, False)
    log.write_bytes(whole.encode() + b"\x00\xff\xfe")
    assert summarize(log).damaged_lines == 1
    log.write_text(whole + "3\n")
    assert summarize(log).damaged_lines == 1


def test_every_torn_length_is_survived(log: Path) -> None:
    whole = log.read_bytes()
    for length in range(0, len(whole), 7):
        log.write_bytes(whole[:length])
        assert summarize(log).damaged_lines <= 1


def test_an_empty_file_has_no_figures(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    path.touch()
    summary = summarize(path)
    assert (summary.samples, summary.cpu_percent.mean, summary.devices) == (0, None, [])


def test_it_is_json_able(log: Path) -> None:
    assert json.loads(json.dumps(asdict(summarize(log))))["power"]["ipmi"]["watts"]["max"] == 500.0


def test_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    path.write_text('{"schema": 2, "t_ms": 1, "source": "cpu"}\n')
    with pytest.raises(SummaryError, match=r"monitor\.jsonl, line 1: schema 2, expected 1"):
        summarize(path)


def test_a_source_of_a_later_version_is_passed_over(log: Path) -> None:
    log.write_text(log.read_text() + line("network", 8000, values={"rx": 1}))
    assert summarize(log).ended_ms == 8000


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        summarize(tmp_path / "monitor.jsonl")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"source": f"s{index}", "unavailable": "no"} for index in range(1025)], "more than 1024 names"),
        ([{"source": f"s{index}", "error": "no"} for index in range(1025)], "more than 1024 names"),
        ([{"source": "x" * 1001, "error": "no"}], "a name of 1000 characters"),
        (
            [
                {"source": "power", "values": {"meter": str(index), "watts": 1, "joules": 1, "method": "counter"}}
                for index in range(1025)
            ],
            "more than 1024 names",
        ),
        (
            [{"source": "accelerator", "values": {"devices": [{"index": i, "error": "x"} for i in range(1025)]}}],
            "1024 devices",
        ),
    ],
)
def test_more_names_than_any_host_has_are_refused(tmp_path: Path, records: list[dict[str, Any]], expected: str) -> None:
    path = tmp_path / "monitor.jsonl"
    path.write_text("".join(json.dumps({"schema": 1, "t_ms": 1, **record}) + "\n" for record in records))
    with pytest.raises(SummaryError, match=expected):
        summarize(path)


def test_messages_are_bounded_in_number_and_length(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    path.write_text("".join(line("cpu", index, error=f"{index}" + "x" * 5000) for index in range(5000)))
    (messages,) = summarize(path).errors.values()
    assert len(messages) == 100 and {len(message) for message in messages} == {1000}


def test_a_line_that_is_too_long_or_too_deep_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    sound = line("cpu", 1, values={"utilization_percent": 50.0})
    path.write_text(sound + " " * (3 << 20) + sound + "[" * 200_000 + "\n" + sound)
    summary = summarize(path)
    assert (summary.samples, summary.damaged_lines) == (2, 2)


def test_a_mean_beyond_a_float_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    path.write_text("".join(line("cpu", 1, values={"utilization_percent": value}) for value in (1.7e308, -1.7e308)))
    with pytest.raises(ValueError, match="no mean"):
        summarize(path)
