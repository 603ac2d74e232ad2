"""Holds `aicb analyze` to its promise: it names what was put in, first, and finds nothing where nothing was."""

import json
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.tiers import samples
from tests.workloads.gloo_runs import INIT_RECORDS, MS, Fault, Recorded, made, recorded
from workloads.analysis.analysis import RunAnalysis, _noise
from workloads.analysis.arrivals import _since_the_team_met
from workloads.analysis.log_comparison import compare_logs
from workloads.analysis.merged import merge
from workloads.cli import main
from workloads.commands.analyze import analysis_of
from workloads.library import CommGroup, CommType, LogItem, Workload
from workloads.oplog.facts import LogFacts
from workloads.oplog.file import OpLog, file_name, write
from workloads.oplog.recorder import OpRecorder
from workloads.rows.ops import EPOCH_END


@cache
def base(ranks: int) -> Recorded:
    return recorded(ranks)


def drawn_fault(ranks: int, seed: int) -> Fault:
    random = Random(1000 + seed)
    return Fault(random.randrange(ranks), random.randrange(base(ranks).operations), random.randrange(1, 51))


def named(found: RunAnalysis, ranks: int, fault: Fault) -> bool:
    """Whether the first finding is the fault: its iteration, rank and class of operation."""
    assert fault.op is not None
    row = base(ranks).logs[0].rows()[INIT_RECORDS + fault.op]
    assert row.comm_group is not None
    first = found.findings[0]
    wanted = (row.comm_type.name, row.comm_group.name, row.msg_size)
    return (first.iteration, first.rank, first.kind) == (fault.iteration, fault.rank, "late") and (
        first.op_class.comm_type, first.op_class.group, first.op_class.size_bytes,
    ) == wanted  # fmt: skip


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("seed", samples(6, 20))
def test_twenty_ms_of_one_rank_are_named_first_and_alone(ranks: int, seed: int) -> None:
    fault = drawn_fault(ranks, seed)
    found = analysis_of(made(base(ranks), seed, [fault]))
    assert named(found, ranks, fault)
    assert len(found.findings) == 1


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("seed", samples(6, 20))
def test_a_clean_run_has_no_finding(ranks: int, seed: int) -> None:
    assert analysis_of(made(base(ranks), seed)).findings == []


@pytest.mark.parametrize("ranks", [4, 8])
def test_the_recorded_runs_themselves_have_no_finding(ranks: int) -> None:
    assert analysis_of(base(ranks).logs).findings == []


def late_every_second(ranks: int, seed: int, op: int | None, first: int = 1, step: int = 2) -> tuple[int, list[OpLog]]:
    """A rank, and the run where it is late by 60 ms in every second iteration, at an operation or after the last."""
    rank = seed % ranks
    faults = [Fault(rank, op, iteration, lost_ns=60 * MS) for iteration in range(first, 51, step)]
    return rank, made(base(ranks), seed, faults)


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("where", ["one operation", "any operation", "after the last"])
def test_a_rank_that_is_late_in_every_second_iteration_is_a_verdict(ranks: int, where: str) -> None:
    """It takes half of the run; that it is late itself elsewhere is no noise that hides it."""
    for seed in samples(3, 20):
        rank, logs = late_every_second(ranks, seed, 3 if where == "one operation" else None)
        if where == "any operation":
            random = Random(seed)
            faults = [Fault(rank, random.randrange(base(ranks).operations), each, 60 * MS) for each in range(1, 51, 2)]
            logs = made(base(ranks), seed, faults)
        found = analysis_of(logs)
        [verdict] = found.late_findings
        # The last iteration has no operation that waits for what comes after it.
        assert verdict.rank == rank and verdict.iterations == 25
        assert verdict.total_ms == pytest.approx(25 * 60, rel=0.1)
        assert verdict.share == pytest.approx(verdict.total_ms / sum_ms(logs), rel=0.02)
        assert found.findings and {each.rank for each in found.findings} == {rank}


def sum_ms(logs: list[OpLog]) -> float:
    """Of the run, by the rows that close its iterations, which are the last of their workload."""
    ends = [log.duration_ns[(log.op == len(log.rows()) - 1) & (log.iteration > 0)] for log in logs]
    return float(np.max(ends, axis=0).sum() / MS)


def test_a_rank_that_is_late_in_each_iteration_is_a_verdict() -> None:
    """Against its own median it never is."""
    rank, logs = late_every_second(4, 2, 3, step=1)
    found = analysis_of(logs)
    assert [each.rank for each in found.late_findings] == [rank]
    assert found.findings == []


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("step", [1, 2])
def test_two_ranks_of_a_host_that_are_late_together_are_verdicts(ranks: int, step: int) -> None:
    """Before an operation of these two alone, where nobody waits: the others do, at a later one."""
    for seed in samples(1, 20):
        first = 2 * (seed % (ranks // 2))
        assert base(ranks).teams[first][3] == (first, first + 1)
        times = range(1, 51, step)
        logs = made(base(ranks), seed, [Fault(rank, 3, each, 60 * MS) for rank in (first, first + 1) for each in times])
        found = analysis_of(logs).late_findings
        assert sorted(each.rank for each in found) == [first, first + 1]
        assert all(0.8 < each.total_ms / (60 * len(times)) < 1.05 for each in found)


@pytest.mark.parametrize("seed", samples(2, 10))
def test_own_times_are_added_since_the_same_ranks_met(seed: int) -> None:
    """By a plain loop over each rank's records."""
    merged = merge(made(base(4), seed))
    expected = np.zeros(len(merged), np.int64)
    for rank in range(4):
        mine = sorted(np.flatnonzero(merged.rank == rank), key=lambda n: (merged.iteration[n], merged.issue_ns[n]))
        total, met = 0, dict[int, int]()
        for record in mine:
            before, total = total, total + int(merged.gap_ns[record])
            expected[record] = total - met.get(int(merged.team[record]), before)
            met[int(merged.team[record])] = total
    assert (_since_the_team_met(merged, merged.gap_ns) == expected).all()


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_clean_run_has_no_late_rank(ranks: int) -> None:
    """Nor has one in which a rank is late once or twice: that is a finding of those iterations."""
    for seed in samples(6, 60):
        assert analysis_of(made(base(ranks), seed)).late_findings == []
    rank, logs = late_every_second(ranks, 1, 3, first=10, step=30)
    found = analysis_of(logs)
    assert found.late_findings == [] and {each.rank for each in found.findings} == {rank}


def test_what_a_late_sender_delays_is_its_own_and_not_the_receivers() -> None:
    logs = [chain(60, late) for late in (range(3, 20, 3), ())]
    assert [each.rank for each in analysis_of(logs[0]).late_findings] == [0]
    assert analysis_of(logs[1]).late_findings == []


def test_three_faults_do_not_hide_one_another() -> None:
    faults = [Fault(0, 3, 10), Fault(3, 7, 20), Fault(2, 1, 20, lost_ns=25 * MS)]
    found = analysis_of(made(base(4), 1, faults))
    assert {(each.iteration, each.rank) for each in found.findings} == {(20, 2), (10, 0), (20, 3)}
    assert found.findings[0].rank == 2


def test_what_one_rank_loses_again_and_again_is_no_noise_that_hides_it() -> None:
    faults = [Fault(2, 3, iteration) for iteration in (8, 19, 27, 33, 46)]
    found = analysis_of(made(base(4), 4, faults))
    assert {(each.iteration, each.rank) for each in found.findings} == {(each.iteration, 2) for each in faults}


@pytest.mark.parametrize("seed", range(5))
def test_the_noise_of_a_cell_is_of_the_others(seed: int) -> None:
    """The third-largest of what the worst of the other ranks lost in each iteration, by a plain loop."""
    random = np.random.default_rng(seed)
    cells = random.permutation([(owner, when) for owner in range(4) for when in range(6) for _ in range(3)])
    owner, when = cells.T[:, : 60 + seed]
    sums = random.exponential(size=len(owner))
    expected = []
    for mine in owner:
        worst = [max(sums[(when == each) & (owner != mine)], default=0.0) for each in np.unique(when)]
        expected.append(sorted(worst)[-3])
    assert _noise(sums, owner, when) == pytest.approx(expected)


def test_time_lost_inside_of_an_operation_is_a_slow_rank_and_not_a_late_one() -> None:
    fault = Fault(1, 4, 30, lost_ns=2000 * MS, inside=True)
    first = analysis_of(made(base(4), 2, [fault], quiet=0.1)).findings[0]
    assert (first.iteration, first.rank, first.kind) == (30, 1, "slow")


def test_time_that_all_ranks_lose_in_it_is_a_slow_collective_of_those_ranks() -> None:
    team = base(4).teams[1][4]
    faults = [Fault(rank, 4, 30, lost_ns=2000 * MS, inside=True) for rank in team]
    first = analysis_of(made(base(4), 2, faults, quiet=0.1)).findings[0]
    assert (first.iteration, first.rank, first.kind, first.team) == (30, None, "collective", team)


def test_the_iteration_with_the_fault_lists_it_first() -> None:
    found = analysis_of(made(base(4), 3, [Fault(2, 5, 17, lost_ns=200 * MS)]))
    slowest = found.iterations[0]
    assert slowest.iteration == 17
    assert slowest.cells[0].rank == 2
    assert 190 < slowest.excess_ms < 300
    assert slowest.cells[0].excess_ms == pytest.approx(200, abs=10)


def uneven(late_rank: int, late_ms: int) -> list[OpLog]:
    """Ten iterations of two exchanges of which each rank sends another size, the second's sizes turned around; one rank
    is late at the second of iteration 6."""
    logs = []
    for rank in range(3):
        shares = [(8 * (1 + rank), 16, 24), (8 * (3 - rank), 16, 24)]
        rows = [
            LogItem(CommType.all_to_all_single, CommGroup.ep_group, 3, sum(each), "f", dtype="uint8", in_splits=each)
            for each in shares
        ]
        log, now = OpRecorder(30), 0
        for iteration in range(1, 11):
            begin = now
            for op, lost in ((0, 0), (1, late_ms * MS if iteration == 6 else 0)):
                issue, now = now + MS + (lost if rank == late_rank else 0), now + 2 * MS + lost
                log.record(op, iteration, issue, now)
            log.record(2, iteration, begin, now)
        facts = LogFacts(rank=rank, world_size=3, mode="each", backend="nccl", groups={"ep_group": [0, 1, 2]})
        logs.append(log.log(facts, Workload([*rows, EPOCH_END])))
    return logs


def test_exchanges_of_which_each_rank_sends_another_size_are_one_operation() -> None:
    found = analysis_of(uneven(late_rank=2, late_ms=500))
    assert [(each.kind, each.rank, each.iteration) for each in found.findings] == [("late", 2, 6)]
    assert all(cell.kind == "late" for cell in found.iterations[0].cells if cell.excess_ms > 1)
    # In a tie the one that is stored last is the last; of all ten operations of a size somebody is.
    assert [(each.team, each.operations, each.op_class.size_bytes) for each in found.last] == [
        ((0, 1, 2), 10, 48), ((0, 1, 2), 10, 64),
    ]  # fmt: skip


def test_the_last_of_a_send_and_its_receive_is_told_with_its_share() -> None:
    """Of ten messages the receiver comes first to seven, the sender to three."""
    logs = []
    for rank, kind in enumerate((CommType.isend, CommType.irecv)):
        row = LogItem(kind, CommGroup.pp_group, 2, 64, "f", additional=("send_next", "recv_prev")[rank])
        log = OpRecorder(20)
        for iteration in range(1, 11):
            begin = iteration * 10 * MS
            log.record(0, iteration, begin + (MS if (rank == 0) == (iteration <= 7) else 0), begin + 2 * MS)
            log.record(1, iteration, begin, begin + 3 * MS)
        facts = LogFacts(rank=rank, world_size=2, mode="each", groups={"pp_group": [0, 1]})
        logs.append(log.log(facts, Workload([row, EPOCH_END])))
    [last] = analysis_of(logs).last
    assert (last.rank, last.share, last.operations, last.team) == (0, 0.7, 10, (0, 1))


def test_the_last_rank_is_told() -> None:
    faults = [Fault(1, 4, iteration, lost_ns=3 * MS) for iteration in range(1, 51)]
    found = analysis_of(made(base(4), 3, faults, quiet=0.02))
    row = base(4).logs[0].rows()[INIT_RECORDS + 4]
    one = next(
        each for each in found.last if each.op_class.size_bytes == row.msg_size and each.team == base(4).teams[1][4]
    )
    assert one.rank == 1
    assert one.lateness_ms < 4


def lately(queued_ms: float, backend: str = "gloo") -> RunAnalysis:
    """A run in which rank 2 is 36 ms late before its fourth operation of iteration 12, so long without a CPU."""
    logs = made(base(4), 5, [Fault(2, 3, 12, lost_ns=36 * MS)])
    queued = np.where((logs[2].iteration == 12) & (logs[2].op == INIT_RECORDS + 3), int(queued_ms * MS), 0)
    logs[2] = replace(logs[2], queued_ns=queued)
    return analysis_of([replace(log, facts=replace(log.facts, backend=backend)) for log in logs])


def test_a_rank_that_waited_for_a_cpu_is_listed_and_is_no_finding_on_gloo() -> None:
    assert lately(0).findings[0].rank == 2
    excused = lately(35)
    assert excused.findings == []
    first = excused.iterations[0].cells[0]
    assert (first.rank, first.kind, first.queued_ms) == (2, "late", 35.0)
    assert str(first).endswith("; for 35.00 ms of it no CPU was free")
    assert lately(10).findings[0].queued_ms == 10
    assert lately(35, backend="nccl").findings[0].rank == 2


def test_what_others_waited_for_a_cpu_is_no_noise_that_hides_a_fault() -> None:
    waits = [Fault(0, 3, iteration, lost_ns=300 * MS) for iteration in (5, 15, 25, 35)]
    logs = made(base(4), 6, [*waits, Fault(2, 3, 40)])
    at = np.isin(logs[0].iteration, [5, 15, 25, 35]) & (logs[0].op == INIT_RECORDS + 3)
    logs[0] = replace(logs[0], queued_ns=np.where(at, 300 * MS, 0))
    assert [(each.iteration, each.rank) for each in analysis_of(logs).findings] == [(40, 2)]


def chain(late_ms: int, iterations: Collection[int] = (9,)) -> list[OpLog]:
    """Two pipeline stages: rank 0 sends to rank 1, in some iterations after `late_ms` more."""
    logs = []
    for rank in (0, 1):
        send = LogItem(CommType.isend, CommGroup.pp_group, 1, 4096, "forward", additional="send_next")
        receive = LogItem(CommType.irecv, CommGroup.pp_group, 1, 4096, "forward", additional="recv_prev")
        log, workload = OpRecorder(100), Workload([EPOCH_END, send if rank == 0 else receive, EPOCH_END])
        now = 0
        for iteration in range(1, 21):
            late = late_ms * MS if iteration in iterations else 0
            own = MS + late if rank == 0 else 0
            done = now + 2 * MS + late
            log.record(1, iteration, now + own, done)
            log.record(2, iteration, now, done)
            now = done
        facts = LogFacts(rank=rank, world_size=2, mode="each", backend="gloo", groups={"pp_group": [0, 1]})
        logs.append(log.log(facts, workload))
    return logs


def test_a_late_send_is_not_blamed_on_the_rank_that_receives() -> None:
    found = analysis_of(chain(20))
    assert [(each.iteration, each.rank, each.op_class.comm_type) for each in found.findings] == [(9, 0, "isend")]
    assert analysis_of(chain(0)).findings == []


def save(folder: Path, logs: list[OpLog]) -> Path:
    folder.mkdir()
    for log in logs:
        write(folder / file_name(log.facts.rank), log)
    return folder


def test_the_command_prints_the_finding_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faulty = save(tmp_path / "a", made(base(4), 0, [Fault(2, 3, 33)]))
    assert main(["analyze", str(faulty)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 of 4 ranks, 50 iterations, median ")
    assert lines[1].startswith("finding: iteration 33: rank 2, all_reduce tp_group 65536 B: +20.")
    (faulty / file_name(3)).unlink()
    assert main(["analyze", str(faulty), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["findings"][0]["rank"] == 2
    clean = save(tmp_path / "b", made(base(4), 0))
    assert main(["analyze", str(clean)]) == 0
    assert "no finding: nothing stands out" in capsys.readouterr().out


def test_a_few_iterations_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = made(base(4), 0, [Fault(2, 3, 3)])[2]
    few = np.flatnonzero(log.iteration <= 5)
    columns = (log.op, log.iteration, log.issue_ns, log.done_ns, log.exposed_ns)
    op, iteration, issue, done, exposed = (column[few] for column in columns)
    short = OpLog(log.facts, log.workload, op, iteration, issue, done, exposed)
    assert main(["analyze", str(save(tmp_path / "a", [short]))]) == 0
    text = capsys.readouterr().out
    assert "no judgement: it takes 8 iterations" in text
    assert "the logs of 3 ranks are not there" in text


def slowed(logs: list[OpLog], factor: float, op: int) -> list[OpLog]:
    return [
        OpLog(log.facts, log.workload, log.op, log.iteration, log.issue_ns,
              log.issue_ns + np.where(log.op == op, log.duration_ns * factor, log.duration_ns).astype(np.int64),
              log.exposed_ns)
        for log in logs
    ]  # fmt: skip


def test_two_runs_are_compared_by_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = made(base(4), 0), made(base(4), 1)
    same = compare_logs(merge(runs[0]), merge(runs[0]))
    assert [each.ratio for each in same.classes] == [1.0] * len(same.classes)
    assert not any(each.differs for each in same.classes)
    changed = compare_logs(merge(runs[0]), merge(slowed(runs[1], 4.0, INIT_RECORDS)))
    broadcast = next(each for each in changed.classes if each.op_class.comm_type == "broadcast")
    assert broadcast.differs
    assert broadcast.low < broadcast.ratio < broadcast.high
    assert 2 < broadcast.ratio < 8
    folders = [
        str(save(tmp_path / name, logs)) for name, logs in zip("ab", (runs[0], slowed(runs[1], 4.0, 2)), strict=True)
    ]
    assert main(["analyze", *folders]) == 1
    assert "broadcast tp_group 40 B" in next(
        line for line in capsys.readouterr().out.splitlines() if line.endswith("differs")
    )
