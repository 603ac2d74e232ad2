"""What keeps ranks from waiting for one another indefinitely: their plans are compared, and a failed call fails."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from tests.tiers import samples
from training.benchmarks.aicb.pytorch.running.execution import Waiters
from training.benchmarks.aicb.pytorch.work.agreement import RankPlan, check, plan_of
from training.benchmarks.aicb.pytorch.work.blocking import Channel
from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from training.benchmarks.aicb.pytorch.work.stream import stream_of
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.formats.workload import Workload
from workloads.job.groups import RankGroups
from workloads.rows.calls import Call
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem

SUM, GATHERED = (LogItem(CommType[kind], CommGroup.dp_group, msg_size=64) for kind in ("all_reduce", "all_gather"))
LARGER = LogItem(CommType.all_reduce, CommGroup.dp_group, msg_size=128)
SENT = LogItem(CommType.isend, CommGroup.pp_group, msg_size=64, additional="send_next")
GOT = LogItem(CommType.irecv, CommGroup.pp_group, msg_size=64, additional="recv_prev")


BACK = LogItem(CommType.isend, CommGroup.pp_group, msg_size=64, additional="send_prev")
RETURNED = LogItem(CommType.irecv, CommGroup.pp_group, msg_size=64, additional="recv_next")
BOTH = LogItem(CommType.all_reduce, CommGroup.pp_group, msg_size=8)


def plans(
    rows: Sequence[Sequence[LogItem]], *, pp: int = 1, settings: Sequence[str] = ("", ""), blocking: bool = True
) -> list[RankPlan]:
    """What two ranks tell each other; `rows` and `settings` by rank."""
    groups, found = RankGroups(world_size=2, pp=pp), []
    for rank, (own, told) in enumerate(zip(rows, settings, strict=True)):
        stage = rank if pp == 2 else 0
        of = StageWorkload(Workload([*own, EPOCH_END]), groups, stage, stage, "test.csv", "")
        found.append(plan_of(stream_of(of, Caller(of, rank, 2, Fraction(1)), blocking=blocking), groups, rank, told))
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


def late(item: LogItem, overlap: int) -> LogItem:
    return replace(item, overlap=overlap)


@pytest.mark.parametrize(
    ("rows", "blocking", "says"),
    [
        ([[RETURNED, SENT], [GOT, BACK]], True, "rank 0 waits in pp_group 0:1:2: rank 1 sends, rank 0 receives"),
        ([[BOTH, *[RETURNED, SENT] * 2], [BOTH, *[GOT, BACK] * 2]], True, r"receives \(its call 1\), rank 1 waits in"),
        ([[SENT, RETURNED], [BACK, GOT]], True, ""),
        ([[SENT, RETURNED], [GOT, BACK]], True, ""),
        ([[BOTH, SENT, BOTH], [BOTH, BOTH, GOT]], True, ""),
        ([[BOTH, SENT, BOTH], [GOT, BOTH, BOTH]], True, "rank 0 waits in pp_group 0:1:2 .its call 1., rank 1 waits in"),
        ([[RETURNED, SENT], [GOT, BACK]], False, "waits in"),
        ([[late(RETURNED, 1), late(SENT, 0)], [GOT, BACK]], False, ""),
    ],
    ids=["receive first", "receive first in the second", "send first", "one of them", "eager", "across", "at once",
         "overlapping"],
)  # fmt: skip
def test_an_order_in_which_all_would_wait_is_refused(rows: list[list[LogItem]], blocking: bool, says: str) -> None:
    found = plans(rows, pp=2, blocking=blocking)
    if not says:
        check(found)
        return
    with pytest.raises(UnusableSettingsError, match=f"indefinitely: .*{says}"):
        check(found)


@pytest.mark.parametrize("seed", samples(40, 400))
def test_the_verdict_is_that_of_a_loop_that_takes_one_call_at_a_time(seed: int) -> None:
    """Four ranks of two groups each and of neighbours, in orders that are shuffled a little."""
    random = Random(seed)
    job = RankGroups(world_size=4, tp=2, pp=2)
    kinds = [LogItem(CommType.all_reduce, group, msg_size=8) for group in (CommGroup.tp_group, CommGroup.pp_group)]
    common = [random.choice(kinds) for _ in range(6)]
    found, programs = [], []
    for rank in range(4):
        rows = list(common)
        for ends in ([SENT, RETURNED] if rank < 2 else [GOT, BACK], [RETURNED, SENT] if rank < 2 else [GOT, BACK]):
            at = random.randrange(len(rows) + 1)
            rows[at:at] = ends
        of = StageWorkload(Workload([*rows, EPOCH_END]), job, rank // 2, rank, "test.csv", "")
        stream = stream_of(of, Caller(of, rank, 4, Fraction(1)), blocking=True)
        found.append(plan_of(stream, job, rank, ""))
        programs.append([stream.calls[item] for item in stream.epochs[0].items])
    try:
        check(found)
        said = False
    except UnusableSettingsError as error:
        said = "waits in" in str(error)
    assert said == stands_still(programs)


def stands_still(programs: list[list[Call | None]]) -> bool:
    """By trying over and over which rank can take its next call; a send needs nobody."""
    at, messages = [0] * len(programs), Counter[tuple[object, object]]()
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            call = program[at[rank]] if at[rank] < len(program) else None
            if call is None:
                continue
            if call.comm_type is CommType.isend:
                messages[rank, call.peer] += 1
                going = [rank]
            elif call.comm_type is CommType.irecv:
                going = [rank] if messages[call.peer, rank] else []
                messages[call.peer, rank] -= len(going)
            else:
                there = [each for each in call.ranks if programs[each][at[each] : at[each] + 1] == [call]]
                going = there if len(there) == len(call.ranks) else []
            for each in going:
                at[each] += 1
            moved = moved or bool(going)
    return any(place < len(program) for place, program in zip(at, programs, strict=True))


@pytest.mark.parametrize("seed", samples(20, 400))
def test_a_group_is_as_far_as_the_last_of_its_ranks(seed: int) -> None:
    random = Random(seed)
    calls = [0] * random.randint(1, 5)
    channel = Channel(range(len(calls)))
    for _ in range(30):
        rank, count = random.randrange(len(calls)), random.randint(0, 3)
        calls[rank] += count
        channel.issue(rank, count)
        assert channel.complete == min(calls)


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
