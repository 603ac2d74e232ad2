"""The curves of a round: of all ranks' steps against a plain loop, of its hosts' monitors, and read from the disk."""

import random
from pathlib import Path
from statistics import median

import pytest
from pydantic import JsonValue

from protocol.perflog import Event, PerfLogRecord
from protocol.perflog.record import Metadata
from run_benchmarks.results.curves import CURVES_FILE, Curve, RoundCurves, node_curves, read_curves
from run_benchmarks.results.records import record_text
from run_benchmarks.results.samples.timeline import Timeline
from run_benchmarks.results.step_curves import MOST_BUCKETS, StepBuckets, step_curves


def step_end(rank: int, at_ms: int, **value: JsonValue) -> PerfLogRecord:
    return PerfLogRecord(
        event=Event.STEP_END, value=value, metadata=Metadata(file="f", lineno=1, time_ms=at_ms, rank=rank)
    )


def ranks(count: int, steps: int, slow: int, late_ms: int) -> tuple[dict[int, StepBuckets], dict[int, list[float]]]:
    """The buckets of so many ranks, and each one's rates."""
    draw, found, rates = random.Random(3), {}, {}
    for rank in range(count):
        found[rank] = StepBuckets()
        rates[rank] = [draw.uniform(90, 100) * (0.5 if rank == slow else 1) for _ in range(steps)]
        for step, rate in enumerate(rates[rank], 1):
            at = 10_000 + 1000 * step + (late_ms if rank == slow else 0)
            found[rank].add(step_end(rank, at, step=step, **{"tokens/s_interval": rate}))
    return found, rates


def test_the_slow_rank_of_eight_is_named_with_how_late_it_is() -> None:
    found, rates = ranks(8, 50, slow=5, late_ms=31)
    curves = step_curves(found, {})
    assert curves is not None and (curves.unit, curves.slowest, curves.steps) == ("tokens/s", 5, [*range(1, 51)])
    assert curves.middle == pytest.approx([median(each[at] for each in rates.values()) for at in range(50)], rel=1e-4)
    assert curves.slowest_rate == pytest.approx(rates[5], rel=1e-4)
    assert all(low <= middle <= high for low, middle, high in zip(curves.low, curves.middle, curves.high, strict=True))
    assert curves.late_ms == {rank: 31.0 if rank == 5 else 0.0 for rank in range(8)}


def test_a_clock_that_is_ahead_makes_no_rank_late() -> None:
    curves = step_curves(ranks(4, 20, slow=2, late_ms=500)[0], {2: 500.0})
    assert curves is not None and set(curves.late_ms.values()) == {0.0}


def test_a_long_training_is_aggregated_while_it_is_read() -> None:
    found, rates = ranks(2, 10_000, slow=1, late_ms=7)
    curves = step_curves(found, {})
    assert curves is not None and 2 <= len(curves.steps) <= MOST_BUCKETS and curves.steps[-1] == 10_000
    width = found[0].width
    second = rates[0][width - 1 : 2 * width - 1], rates[1][width - 1 : 2 * width - 1]  # steps width to 2 width - 1
    assert curves.middle[1] == pytest.approx(sum(map(sum, second)) / len(second[0]) / 2, rel=1e-4)
    assert curves.late_ms == {0: -3.5, 1: 3.5}


def test_steps_without_rates_have_those_of_their_times_and_nonsense_has_none() -> None:
    timed, odd = StepBuckets(), StepBuckets()
    for step in range(1, 5):
        timed.add(step_end(0, 1000 + 500 * step, step=10 * step))
        odd.add(step_end(1, 1000, step="x"))
    curves = step_curves({0: timed}, {})
    assert curves is not None and (curves.unit, curves.middle) == ("steps/s", [20.0, 20.0, 20.0])
    assert step_curves({0: timed, 1: odd}, {}) == curves and step_curves({1: odd}, {}) is None


def test_curves_are_read_as_they_were_written_by_the_head_nodes_clock(tmp_path: Path) -> None:
    timeline = Timeline()
    for second in (0, 1, 3):
        timeline.take("cpu", 1_000_000 + 1000 * second, {"utilization_percent": 12.3456789})
    node = node_curves("node1", 0, timeline, 2.5, (1_001_000, 1_002_000))
    assert node is not None and (node.started_ms, node.work_ms) == (997_500, (998_500, 999_500))
    (tmp_path / CURVES_FILE).write_text(record_text(RoundCurves(nodes=[node]), indent=None))
    (read,) = read_curves(tmp_path).nodes
    assert read == node and read.curves[0].values == "12.346 12.346 - 12.346"
    assert read.curves[0].numbers() == [12.346, 12.346, None, 12.346]


OF_NO_LENGTH = '{"nodes": [{"host": "a", "node_rank": 0, "started_ms": 0, "bucket_ms": 0, "curves": []}]}'


@pytest.mark.parametrize(
    "text", ["", "[]", '{"nodes": 3}', '{"schema_version": 1, "nodes": [{"host": "a"}]}', OF_NO_LENGTH]
)
def test_a_file_that_is_none_has_no_curves(tmp_path: Path, text: str) -> None:
    assert read_curves(tmp_path) == RoundCurves()
    (tmp_path / CURVES_FILE).write_text(text)
    assert read_curves(tmp_path) == RoundCurves()
    assert Curve(metric="cpu", values="1 nan inf x -").numbers() == [1.0, None, None, None, None]
    assert Curve(metric="cpu", values="1 nan -inf 2").numbers() == [1.0, None, None, 2.0]
    assert Curve(metric="cpu", values="1e308 1e308 -1").numbers() == [1e308, 1e308, -1.0], "whose sum is no number"
