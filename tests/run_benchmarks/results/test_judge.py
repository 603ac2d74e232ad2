"""From what lies on disk to a verdict and the first failure."""

from pathlib import Path
from typing import Any

import pytest

from protocol.circumstance import Circumstance, CircumstanceKind
from protocol.perflog import Event
from run_benchmarks.errors import CommandError
from run_benchmarks.results.judge import bounded_metrics, judge
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import Verdict
from tests.run_benchmarks.results.rounds import START_MS, STEP, SUBMIT, node_exit, node_plan, outcome, rank_failure


def test_all_well_is_a_pass_with_rank_0_s_figures(tmp_path: Path) -> None:
    nodes = [outcome(tmp_path, "node1"), outcome(tmp_path, "node2", 1, (2, 3))]
    judgement = judge(nodes, ended_early=None)
    assert (judgement.verdict, judgement.reason) == (Verdict.PASS, "all ranks finished")
    assert judgement.first_failure is None
    assert judgement.metrics == {"correct": "pass", "busbw_GBps": 1.5}
    assert judgement.steps == [STEP]
    assert judgement.warnings == []


def test_an_exit_code_fails_and_names_host_and_rank(tmp_path: Path) -> None:
    record = node_exit(7, [rank_failure(2, 50)])
    nodes = [
        outcome(tmp_path, "node1", exit_code=143, record=node_exit(143), stopped=True, until=Event.STEP_BEGIN),
        outcome(tmp_path, "node2", 1, (2, 3), exit_code=7, record=record, until=Event.TRAIN_START, output="launcher"),
    ]
    judgement = judge(nodes, ended_early=None)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason == "rank 2 on node2: exit code 7: ValueError: rank 2"
    failure = judgement.first_failure
    assert failure is not None
    assert (failure.host, failure.rank, failure.exit_code, failure.signal) == ("node2", 2, 7, None)
    assert "TRAIN_START" in failure.log_tail
    assert judgement.metrics == {}


def test_a_signal_fails_by_its_name(tmp_path: Path) -> None:
    killed = rank_failure(1, 5, exit_code=None, signal="SIGKILL", message="killed, perhaps by the out-of-memory killer")
    judgement = judge([outcome(tmp_path, exit_code=137, record=node_exit(137, [killed]))], ended_early=None)
    assert judgement.reason == "rank 1 on node1: ended by SIGKILL: killed, perhaps by the out-of-memory killer"


@pytest.mark.parametrize(("offset", "first"), [(0.0, 0), (2.0, 2)])
def test_the_first_failure_is_found_across_clocks(tmp_path: Path, offset: float, first: int) -> None:
    """node2's clock is `offset` seconds ahead; its rank 2 failed 1 s later by the clocks on the wall."""
    nodes = [
        outcome(tmp_path, "node1", exit_code=7, record=node_exit(7, [rank_failure(0, 1000)])),
        outcome(
            tmp_path, "node2", 1, (2, 3), exit_code=7, record=node_exit(7, [rank_failure(2, 2000)]), clock_offset=offset
        ),
    ]
    failure = judge(nodes, ended_early=None).first_failure
    assert failure is not None
    assert failure.rank == first


def test_what_was_stopped_because_of_another_is_no_cause(tmp_path: Path) -> None:
    stopped = rank_failure(0, 10, exit_code=None, signal="SIGTERM", stopped=True)
    cause = rank_failure(1, 500)
    judgement = judge([outcome(tmp_path, exit_code=7, record=node_exit(7, [stopped, cause]))], ended_early=None)
    assert judgement.first_failure is not None
    assert judgement.first_failure.rank == 1


def test_only_stopped_peers_are_judged_by_what_they_left(tmp_path: Path) -> None:
    nodes = [outcome(tmp_path, exit_code=143, record=node_exit(143), stopped=True, until=Event.STEP_END)]
    judgement = judge(nodes, ended_early=None)
    failure = judgement.first_failure
    assert judgement.verdict is Verdict.FAIL and failure is not None
    assert (failure.host, failure.rank, failure.exit_code) == ("node1", 0, None)
    assert judgement.reason == "rank 0: PerfLog: TRAIN_END must stand exactly once, found 0"


def test_a_launch_that_could_not_begin_comes_before_the_ranks_that_missed_it(tmp_path: Path) -> None:
    refused = node_exit(2, error="no interface reaches the master", finished_ms=rank_failure(0, 100).time_ms)
    late = node_exit(1, [rank_failure(0, 5000, message="DistNetworkError: timed out")])
    nodes = [
        outcome(tmp_path, "node1", exit_code=1, record=late),
        outcome(tmp_path, "node2", 1, (2, 3), exit_code=2, record=refused),
    ]
    judgement = judge(nodes, ended_early=None)
    assert judgement.reason == "node2: exit code 2: no interface reaches the master"


def lost(folder: Path, host: str, **fields: Any) -> NodeOutcome:
    """A node that left nothing."""
    folder = folder / host
    folder.mkdir()
    return NodeOutcome(node=node_plan(host, 1, (2, 3)), folder=folder, **fields)


def test_a_node_without_an_exit_code_is_named_with_its_error(tmp_path: Path) -> None:
    nodes = [outcome(tmp_path, exit_code=143, stopped=True), lost(tmp_path, "node2", error="node2: link lost")]
    judgement = judge(nodes, ended_early=None)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason == "node2: no exit code: link lost"


def silent(folder: Path, host: str, heard_s: float, silent_s: float) -> NodeOutcome:
    """A node whose host was last heard, and first did not answer, so many seconds after the start."""
    times = {"heard_ms": START_MS + round(heard_s * 1000), "silent_ms": START_MS + round(silent_s * 1000)}
    return lost(folder, host, error=f"{host}: out of reach for 24 s", lost=True, **times)


def test_lost_hosts_are_named_in_the_order_of_their_loss(tmp_path: Path) -> None:
    nodes = [silent(tmp_path, "node1", 30.0, 33.0), silent(tmp_path, "node2", 11.0, 34.0)]
    judgement = judge(nodes, ended_early=None)
    assert judgement.reason == ("node2: no exit code: out of reach for 24 s; 19 s later node1: out of reach for 24 s")
    failure = judgement.first_failure
    assert failure is not None and failure.lost and [line[:5] for line in failure.evidence] == ["node2", "node1"]


@pytest.mark.parametrize(("at_s", "named"), [(10.0, "node1"), (13.5, "node2")])
def test_a_rank_that_failed_before_a_host_fell_silent_comes_first(tmp_path: Path, at_s: float, named: str) -> None:
    """Somewhere between two questions the host was lost; by the later one it certainly was."""
    broken = outcome(tmp_path, exit_code=7, record=node_exit(7, [rank_failure(0, round(at_s * 1000))]))
    failure = judge([broken, silent(tmp_path, "node2", 11.0, 13.0)], ended_early=None).first_failure
    assert failure is not None and (failure.host, failure.lost) == (named, named == "node2")


@pytest.mark.parametrize("kind", list(CircumstanceKind))
def test_what_a_host_tells_of_its_end_is_the_reason(tmp_path: Path, kind: CircumstanceKind) -> None:
    found = (Circumstance(kind=kind, words="what there was"),)
    nodes = [
        outcome(tmp_path, exit_code=143, stopped=True),
        outcome(tmp_path, "node2", 1, (2, 3), exit_code=2, record=node_exit(2), circumstances=found),
    ]
    judgement = judge(nodes, ended_early=None)
    assert judgement.reason == "node2: exit code 2: what there was"
    assert judgement.first_failure is not None
    assert judgement.first_failure.lost is (kind not in (CircumstanceKind.MEMORY, CircumstanceKind.DISK))


def test_a_full_disk_stands_beside_what_a_rank_died_of(tmp_path: Path) -> None:
    full = (
        Circumstance(
            kind=CircumstanceKind.DISK, words="the disk is full: 0 bytes are free on /data, which holds /logs"
        ),
    )
    failed = node_exit(1, [rank_failure(0, 100)])
    judgement = judge([outcome(tmp_path, exit_code=1, record=failed, circumstances=full)], ended_early=None)
    assert judgement.reason == f"rank 0 on node1: exit code 7: ValueError: rank 0; {full[0].words}"
    assert judgement.first_failure is not None and not judgement.first_failure.lost


def test_no_reason_is_a_piece_of_a_script(tmp_path: Path) -> None:
    script = 'cd "$1" || exit 1\nread -r end\ncat exit.json\n'
    error = CommandError("node1", ["sh", "-c", script, "sh", "/state"], 1, "sh: 1: cd: can't cd\nto /state\n")
    judgement = judge([lost(tmp_path, "node1", error=str(error))], ended_early=None)
    assert judgement.reason == "node1: no exit code: `sh -c ... sh /state` exited 1: sh: 1: cd: can't cd to /state"


def test_a_launcher_that_left_no_record_did_not_fail_before_its_ranks_ran(tmp_path: Path) -> None:
    node = outcome(tmp_path, exit_code=2, until=Event.STEP_END, output="launch: begins\nlaunch: [Errno 5]\n")
    (node.folder / "node_exit.json").unlink()
    reason = "its launcher ended after its ranks had begun and left no record: launch: [Errno 5]"
    assert judge([node], ended_early=None).reason == f"node1: exit code 2: {reason}"


def test_a_node_that_never_ran_is_not_blamed_for_the_one_that_could_not_be_prepared(tmp_path: Path) -> None:
    nodes = [lost(tmp_path, "node1"), lost(tmp_path, "node2", error="node2: no space left on device")]
    judgement = judge(nodes, ended_early=None)
    assert judgement.first_failure is not None
    assert judgement.first_failure.host == "node2"


def test_a_task_that_died_before_its_ranks_shows_its_own_output(tmp_path: Path) -> None:
    node = lost(tmp_path, "node1", exit_code=127, output="python3: not found\n")
    failure = judge([node], ended_early=None).first_failure
    assert failure is not None
    assert (failure.rank, failure.exit_code, failure.log_tail) == (None, 127, "python3: not found")
    assert failure.message == "the task failed before its ranks ran"


@pytest.mark.parametrize(
    ("finished", "reason"),
    [
        ({"correct": "fail"}, "rank 0: received data is wrong"),
        ({"converged": False}, "rank 0: the target was not reached"),
    ],
)
def test_ranks_that_ended_well_may_still_fail(tmp_path: Path, finished: dict[str, Any], reason: str) -> None:
    judgement = judge([outcome(tmp_path, finished=finished)], ended_early=None)
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, reason)
    failure = judgement.first_failure
    assert failure is not None and (failure.host, failure.rank) == ("node1", 0) and failure.log_tail
    assert judgement.metrics == finished


@pytest.mark.parametrize("finished", [{"converged": True}, {"correct": "not checked"}])
def test_what_is_no_failure(tmp_path: Path, finished: dict[str, Any]) -> None:
    assert judge([outcome(tmp_path, finished=finished)], ended_early=None).verdict is Verdict.PASS


@pytest.mark.parametrize("name", ["rank1.out.log", "node_exit.json", "monitor.jsonl", "sys_info.json"])
def test_a_file_that_did_not_come_is_a_failure(tmp_path: Path, name: str) -> None:
    node = outcome(tmp_path)
    (node.folder / name).unlink()
    assert node.missing() == [name]
    judgement = judge([node], ended_early=None)
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, f"node1: not collected: {name}")


def test_a_torn_line_that_was_needed_is_missed_and_told(tmp_path: Path) -> None:
    node = outcome(tmp_path)
    log = node.folder / "rank1.out.log"
    log.write_text(log.read_text()[:-9])
    judgement = judge([node], ended_early=None)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason == "rank 1: PerfLog: FINISHED must stand exactly once, found 0"
    assert len(judgement.warnings) == 1
    assert judgement.warnings[0].startswith("rank 1: PerfLog: the last line is cut off: '[PerfLog] ")


def test_a_torn_line_alone_is_told_and_no_failure(tmp_path: Path) -> None:
    node = outcome(tmp_path)
    log = node.folder / "rank1.out.log"
    log.write_text(log.read_text() + '[PerfLog] {"event": "STEP_')
    judgement = judge([node], ended_early=None)
    assert (judgement.verdict, judgement.reason) == (Verdict.PASS, "all ranks finished")
    assert judgement.warnings == ['rank 1: PerfLog: the last line is cut off: \'[PerfLog] {"event": "STEP_\'']


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict.TIMEOUT, "did not end within its time limit of 5 s"),
        (Verdict.ABORTED, "interrupted by SIGINT"),
    ],
)
def test_the_controller_s_own_reason_to_end_stands(tmp_path: Path, verdict: Verdict, reason: str) -> None:
    node = outcome(tmp_path, exit_code=7, record=node_exit(7, [rank_failure(0, 1)]))
    judgement = judge([node], ended_early=(verdict, reason))
    named = "; rank 0 on node1: exit code 7: ValueError: rank 0" if verdict is Verdict.TIMEOUT else ""
    assert (judgement.verdict, judgement.reason) == (verdict, reason + named)
    assert judgement.first_failure is not None


def test_records_of_a_host_may_be_damaged(tmp_path: Path) -> None:
    node = outcome(tmp_path)
    summary = node.monitor_summary()
    assert summary is not None
    assert summary["power"]["rapl"]["joules"] == 955.0
    (node.folder / "node_exit.json").write_bytes(b"\xff{")
    assert node.exit_record() is None
    for text in (
        '{"schema": 1, "source": "cpu", "t_ms": 1, "values": {}}\n',
        '{"schema": 9, "source": "cpu", "t_ms": 1}',
    ):
        (node.folder / "monitor.jsonl").write_text(text)
        assert node.monitor_summary() is None
    (node.folder / "monitor.jsonl").unlink()
    assert node.monitor_summary() is None


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ({"a": 1.5, "b" * 200: 1, "c" * 201: 2}, {"a", "b" * 200}),
        ({"a": 1.5, "b": "x" * ((64 << 10) - 2), "c": "x" * ((64 << 10) - 1)}, {"a", "b"}),
        ({"a": 1.5, "b": [{"c": ["x"] * 20_000}]}, {"a"}),
        ({f"m{number}": number for number in range(1001)}, {f"m{number}" for number in range(1000)}),
    ],
    ids=["a long name", "a long text", "a large object", "many"],
)
def test_metrics_beyond_their_bounds_are_left_out_one_by_one(found: dict[str, Any], kept: set[str]) -> None:
    metrics, (sentence,) = bounded_metrics(found)
    assert metrics == {name: found[name] for name in kept}
    assert sentence.startswith(
        f"rank 0: 1 of {len(found)} metrics are not in this record: it holds 1000, each of 65536"
    )


def test_the_measured_work_of_each_host_is_told(tmp_path: Path) -> None:
    nodes = [outcome(tmp_path, "node1"), outcome(tmp_path, "node2", 1, (2, 3), until=Event.STEP_END)]
    log = nodes[0].folder / "rank1.out.log"
    for name, time_ms in (("TRAIN_START", 3), ("TRAIN_END", 6)):  # this rank begins and ends earlier than the other
        lines = [line for line in log.read_text().splitlines() if name in line]
        (sooner,) = (line.replace(f"{START_MS + time_ms}", f"{START_MS + time_ms - 2}") for line in lines)
        log.write_text(log.read_text().replace(lines[0], sooner))
    judgement = judge(nodes, ended_early=None)
    assert judgement.phases_ms == {"node1": (START_MS + 1, START_MS + 6)}
    summary = nodes[0].monitor_summary((START_MS - 1000, START_MS + 1000))
    assert summary is not None and summary["phase"]["started_ms"] == START_MS - 1000


def test_who_lost_a_peer_is_no_cause_whatever_the_clocks_say(tmp_path: Path) -> None:
    lost = rank_failure(0, 1000, message="Connection closed by peer", lost_peer=True)
    nodes = [
        outcome(tmp_path, "node1", exit_code=1, record=node_exit(1, [lost])),
        outcome(tmp_path, "node2", 1, (2, 3), exit_code=7, record=node_exit(7, [rank_failure(2, 1003)])),
    ]
    failure = judge(nodes, ended_early=None).first_failure
    assert failure is not None
    assert (failure.host, failure.rank) == ("node2", 2)


@pytest.mark.parametrize(
    ("planned", "reason"),
    [
        (SUBMIT.case_sha256, "all ranks finished"),
        ("6" * 64, f"rank 0: it ran another case.json than the plan's: sha256 {'5' * 64}, the plan's is {'6' * 64}"),
    ],
)
def test_every_rank_has_to_have_read_the_case_file_of_the_plan(planned: str, reason: str, tmp_path: Path) -> None:
    assert judge([outcome(tmp_path)], ended_early=None, case_sha256=planned).reason == reason


def test_a_rank_that_does_not_say_what_it_read_fails_the_round(tmp_path: Path) -> None:
    node = outcome(tmp_path)
    log = node.folder / "rank1.out.log"
    log.write_text(log.read_text().replace(f'"{SUBMIT.case_sha256}"', "null"))
    judgement = judge([node], ended_early=None, case_sha256=SUBMIT.case_sha256)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason.startswith("rank 1: its SUBMIT_INFO names no case_sha256")
