"""When a round counts as stalled: by each rank's counts, not by what it prints, and never for waiting for a peer."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.rank_states import NodeRanks, RankState
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.rounds import stall as stall_module
from run_benchmarks.rounds.stall import MIN_POLL_SECONDS, StallWatch
from run_benchmarks.state.context import RunningNode
from tests.run_benchmarks.results.rounds import node_plan

LIMIT = 3 * MIN_POLL_SECONDS


class Bed:
    """Two ranks of this machine whose launcher's record and logs are written here."""

    def __init__(self, folder: Path, host: str = "localhost") -> None:
        self._folder, self._count = folder, 0
        plan = node_plan(host, 0, (0, 1)).model_copy(update={"log_dir_host": str(folder)})
        self.node = RunningNode(plan=plan, host=LocalHost(host), outcome=NodeOutcome(node=plan, folder=folder))

    def write(self, *, moving: tuple[int, ...], printing: tuple[int, ...], **common: Any) -> None:
        """One more look's worth: the counts of some ranks have grown, and the logs of some."""
        self._count += 1
        states = []
        for rank in (0, 1):
            log = self._folder / f"rank{rank}.out.log"
            with log.open("a") as file:
                file.write("a line\n" if rank in printing else "")
            own = common.get(f"r{rank}", {})
            now_ms = 1000 + self._count
            fields = {"pid": 1, "told_ms": now_ms, "moved_ms": 0, "is_training": True, **own}
            states.append(RankState(rank=rank, steps=self._count if rank in moving else 0, **fields))
        NodeRanks(written_ms=now_ms, ranks=states).write(self._folder)

    def verdict(self, seconds: float, **looks: Any) -> str | None:
        """What the watch says at the end of so many seconds of such looks, or as soon as it says anything."""
        self.write(**looks)
        with StallWatch([self.node], LIMIT) as stall:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and stall.stalled() is None:
                self.write(**looks)
                time.sleep(MIN_POLL_SECONDS / 5)
            return stall.stalled()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield Bed(tmp_path)


def test_printing_is_no_progress_in_training(bed: Bed) -> None:
    found = bed.verdict(20.0, moving=(), printing=(0, 1)) or ""
    said = re.fullmatch(rf"no rank made progress for ([0-9.]+) s, its stall limit is {LIMIT:g} s", found)
    assert said is not None and float(said[1]) >= LIMIT, found


def test_a_rank_alone_is_named_though_others_get_on(bed: Bed) -> None:
    found = bed.verdict(20.0, moving=(0,), printing=(0, 1)) or ""
    how = rf"rank 1 on localhost made no progress for [0-9.]+ s, its stall limit is {LIMIT:g} s, while others did"
    assert re.fullmatch(how, found), found


def test_a_rank_whose_python_is_silent_does_not_wait_any_more(bed: Bed) -> None:
    silent = {"waits_in": "barrier", "told_ms": -60_000}
    assert "rank 1 on localhost" in str(bed.verdict(20.0, moving=(0,), printing=(), r1=silent))


@pytest.mark.parametrize("is_frozen", [True, False])
def test_ranks_that_were_set_up_when_their_launcher_stood_still_are_named(
    is_frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a paused container; one whose launcher still reports may take its time."""
    monkeypatch.setattr(stall_module, "SILENT_SECONDS", LIMIT)
    (tmp_path / "other").mkdir()
    beds = Bed(tmp_path), Bed(tmp_path / "other", "other")

    def write(number: int) -> None:
        """The ranks of the first node work; those of the other neither work nor print."""
        beds[0].write(moving=(0, 1), printing=())
        if number == 0 or not is_frozen:
            beds[1].write(moving=(), printing=(), r0={"is_training": False}, r1={"is_training": False})

    write(0)
    with StallWatch([bed.node for bed in beds], LIMIT) as stall:
        deadline = time.monotonic() + (20.0 if is_frozen else 3 * LIMIT)
        number = 0
        while time.monotonic() < deadline and stall.stalled() is None:
            number += 1
            write(number)
            time.sleep(MIN_POLL_SECONDS / 5)
        found = stall.stalled()
    assert re.match(r"rank [01] on other made no progress for ", str(found)) if is_frozen else found is None, found


@pytest.mark.parametrize(
    "looks",
    [
        {"moving": (0,), "printing": (), "r1": {"waits_in": "barrier"}},
        {"moving": (), "printing": (1,), "r0": {"is_training": False}, "r1": {"is_training": False}},
        {"moving": (0,), "printing": (), "r1": {"ended_us": 5}},
    ],
    ids=["waits for the other", "prints while it is set up", "has ended"],
)
def test_what_is_no_stall(bed: Bed, looks: dict[str, Any]) -> None:
    assert bed.verdict(2 * LIMIT, **looks) is None


def test_a_host_that_cannot_be_asked_is_no_stall(bed: Bed) -> None:
    bed.node.lost = True
    assert bed.verdict(2 * LIMIT, moving=(), printing=()) is None


def test_a_limit_starts_anew_when_the_controller_stood_still(bed: Bed) -> None:
    """What the ranks did meanwhile comes only with the next looks, which a broken connection may delay."""
    clock = {"now": 0.0, "slept": 0.0}
    stall = StallWatch([bed.node], 8.0, lambda: clock["now"], lambda: clock["slept"])
    clock["now"] = 7.0
    assert stall.stalled() is None
    clock.update(now=9.0, slept=26.0)
    assert stall.stalled() is None
    clock["now"] = 16.9
    assert stall.stalled() is None
    clock["now"] = 17.1
    assert str(stall.stalled()).startswith("no rank made progress for 8.1 s")
