"""Iterations of calls that wait at random follow from blocks of them; an occasion that was made stays made."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.session.revision import Revision
from tests.performance import composed
from tests.performance.ranks import measured_by_ranks


def test_an_iteration_of_calls_of_random_times_takes_as_long_as_blocks_say() -> None:
    """Exponential times, whose median is ln 2 of their mean: by medians of calls each error would be -31 %."""
    draw = random.Random(30).expovariate

    def block(calls: int, size: int) -> float:
        return sum(draw(1.0) for _ in range(calls)) / calls * (100 + size / 1e3)

    def step(name: str, size: int, key: str, us: float) -> dict[str, Any]:
        return {"collective": name, "world_size": composed.RANKS, "size_bytes": size, "time_us": {"p50": us}, key: us}

    parts = [(name, size) for name in composed.KINDS.values() for size in composed.SIZES for _ in range(200)]
    calls = {job: composed.calls_of(job) for job in composed.JOBS}
    found = {
        "product_us": [50.0],
        composed.LOOPS: [step(name, size, "", block(20, size)) for name, size in parts],
        composed.SUITE: [step(name, size, "added_us", block(20, size) - 50) for name, size in parts],
        "jobs": {
            job: [sum(block(20, max(size, 1024)) for _, size in its) for _ in range(200)] for job, its in calls.items()
        },
    }
    rows = composed.rows_of("paper", [found] * 3)
    assert len(rows) == 2 * len(composed.JOBS) and all(row.met for row in rows)


def test_a_call_that_was_cut_off_goes_on_with_the_next_occasion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composed, "ROOT", tmp_path)
    made: list[int] = []

    def measured(*_: object, **__: object) -> dict[str, int]:
        if len(made) == 2:
            made.append(0)
            raise RuntimeError
        made.append(len(made))
        return {"number": len(made)}

    monkeypatch.setattr(composed, "measured_by_ranks", measured)
    with pytest.raises(RuntimeError):
        composed.occasions("it", smoke=False)
    (kept,) = tmp_path.rglob("it.json")
    assert json.loads(kept.read_text())["occasions"] == [{"number": 1}, {"number": 2}]
    before = kept.read_text()
    assert len(composed.occasions("it", smoke=True)) == 1 and kept.read_text() == before
    made.pop()
    assert composed.occasions("it", smoke=False) == [{"number": 1}, {"number": 2}, {"number": 4}]
    assert not kept.exists()
    kept.write_text(before)
    monkeypatch.setattr(composed, "revision", lambda *_: Revision("another"))
    assert [each["number"] for each in composed.occasions("it", smoke=False)] == [5, 6, 7]


def test_ranks_of_every_node_end_in_time_and_their_failure_counts() -> None:
    """Each node gets the call within its words; one whose ranks fail fails the measurement."""
    told = ["sh", "-c", 'echo "mark [\\"$0\\", \\"$1\\", $2, $3]"']
    run = partial(measured_by_ranks, "no_module", "mark ", ranks=2, smoke=True, timeout_s=7)
    found: Any = run(nodes=[told])
    assert found == ["timeout", "-k", 10, 7]
    with pytest.raises(RuntimeError, match=r"left with \[0, 3\]"):
        run(nodes=[told, ["sh", "-c", "exit 3"]])
