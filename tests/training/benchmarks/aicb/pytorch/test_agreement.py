"""What keeps ranks from waiting for one another indefinitely: their plans are compared, and a failed call fails."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from training.benchmarks.aicb.pytorch.agreement import RankPlan, check, plan_of
from training.benchmarks.aicb.pytorch.calls import Caller
from training.benchmarks.aicb.pytorch.stage import StageWorkload
from training.benchmarks.aicb.pytorch.stream import stream_of
from training.benchmarks.aicb.pytorch.waiting import Waiters
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.formats.workload import Workload
from workloads.job.groups import RankGroups
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem

SUM, GATHERED = (LogItem(CommType[kind], CommGroup.dp_group, msg_size=64) for kind in ("all_reduce", "all_gather"))
LARGER = LogItem(CommType.all_reduce, CommGroup.dp_group, msg_size=128)
SENT = LogItem(CommType.isend, CommGroup.pp_group, msg_size=64, additional="send_next")
GOT = LogItem(CommType.irecv, CommGroup.pp_group, msg_size=64, additional="recv_prev")


def plans(rows: Sequence[Sequence[LogItem]], *, pp: int = 1, settings: Sequence[str] = ("", "")) -> list[RankPlan]:
    """What two ranks tell each other; `rows` and `settings` by rank."""
    groups, found = RankGroups(world_size=2, pp=pp), []
    for rank, (own, told) in enumerate(zip(rows, settings, strict=True)):
        stage = rank if pp == 2 else 0
        of = StageWorkload(Workload([*own, EPOCH_END]), groups, stage, stage, "test.csv", "")
        found.append(plan_of(stream_of(of, Caller(of, rank, 2, Fraction(1)), blocking=True), groups, rank, told))
    return found


def test_ranks_that_make_the_same_calls_agree() -> None:
    check(plans([[SUM, GATHERED], [SUM, GATHERED]]))
    check(plans([[SENT], [GOT]], pp=2))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (plans([[SUM], [SUM]], settings=("scale 1", "scale 2")), "^rank 1 and rank 0 disagree on groups, settings"),
        (plans([[SUM, GATHERED], []]), "indefinitely: dp_group 0:1:2: rank 1 never calls it, rank 0 does$"),
        (plans([[SUM], [LARGER]]), "dp_group 0:1:2: 1 calls on rank 0 and 1 calls on rank 1 do not fit together$"),
        (plans([[SUM, GATHERED], [GATHERED, SUM]]), "2 calls on rank 0 and 2 calls on rank 1 do not fit together$"),
        (plans([[SENT], []], pp=2), "rank 0 sends, rank 1 receives: 1 calls on rank 0 do not fit together$"),
        (plans([[], [GOT, GOT]], pp=2), "rank 0 sends, rank 1 receives: 2 calls on rank 1 do not fit together$"),
        ([*map(RankPlan, ("no file", "no memory", "no file"))], r"^no file \(ranks 0, 2\); no memory \(rank 1\)$"),
    ],
    ids=["settings", "absent", "size", "order", "not received", "not sent", "problems"],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_first_call(found: list[RankPlan], says: str) -> None:
    with pytest.raises(UnusableSettingsError, match=says):
        check(found)


class LostPeer:
    """A call under way whose peer ends."""

    def wait(self) -> None:
        raise RuntimeError("Connection closed by peer")


def test_a_call_that_fails_does_so_where_the_program_waits_for_it() -> None:
    waiters = Waiters()
    pending = waiters.add("dp", LostPeer())  # type: ignore[arg-type] # what is waited for
    with pytest.raises(RuntimeError, match="closed by peer"):
        pending.wait()
    assert pending.done_ns > 0
    waiters.close()
