"""Rules by which a rank is named, on records as they lie on disk."""

from pathlib import Path
from typing import Any

import pytest

from protocol.circumstance import Circumstance, CircumstanceKind, NodeLook
from protocol.perflog import Event
from protocol.rank_states import NodeRanks, RankState
from run_benchmarks.results.blame import _in_a_line
from run_benchmarks.results.judge import judge
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import Verdict
from tests.run_benchmarks.results.rounds import START_MS, node_exit, outcome, perflog, rank_failure

TIMEOUT = (Verdict.TIMEOUT, "did not end within its time limit of 5 s")
WRITTEN_MS = START_MS + 60_000


def states(node: NodeOutcome, **by_rank: dict[str, Any]) -> NodeOutcome:
    """The node with a rank_states.json: each rank waits in an all_reduce since 30 s unless its values say else."""
    base = {"pid": 1, "told_ms": WRITTEN_MS - 500, "moved_ms": WRITTEN_MS - 30_000, "state": "S"}
    base |= {"events": 9, "is_training": True, "collectives": {"0": 18}, "waits_in": "all_reduce"}
    ranks = [
        RankState.model_validate({**base, "rank": rank, **by_rank.get(f"r{rank}", {})}) for rank in node.node.ranks
    ]
    NodeRanks(written_ms=WRITTEN_MS, ranks=ranks).write(node.folder)
    return node


def two_nodes(folder: Path, **by_rank: dict[str, Any]) -> list[NodeOutcome]:
    """Of a round that did not end; node2's clock is 100 s ahead."""
    nodes = [
        outcome(folder, "node1", exit_code=143, record=node_exit(143), stopped=True, until=Event.STEP_BEGIN),
        outcome(
            *(folder, "node2", 1, (2, 3)),
            exit_code=143,
            record=node_exit(143),
            stopped=True,
            until=Event.STEP_BEGIN,
            clock_offset=100.0,
        ),
    ]
    return [states(node, **by_rank) for node in nodes]


@pytest.mark.parametrize(
    ("rank", "values", "why"),
    [
        (1, {"state": "T", "waits_in": None}, "hangs: its process is stopped (state T)"),
        (3, {"collectives": {"0": 17}, "waits_in": None}, "it has begun 17 collectives of group 0, others 18"),
        (2, {"waits_in": None}, "it is in no collective, while others wait in all_reduce"),
        (2, {"told_ms": WRITTEN_MS - 29_000}, "it is in no collective, while others wait in all_reduce"),
    ],
)
def test_who_stands_still_is_told_from_who_waits(rank: int, values: dict[str, Any], why: str, tmp_path: Path) -> None:
    judgement = judge(two_nodes(tmp_path, **{f"r{rank}": values}), ended_early=TIMEOUT)
    failure = judgement.first_failure
    assert failure is not None and (failure.host, failure.rank) == (f"node{rank // 2 + 1}", rank)
    assert judgement.reason.startswith(f"{TIMEOUT[1]}; rank {rank} on node{rank // 2 + 1}: hangs")
    assert why in judgement.reason
    assert failure.evidence[0].startswith(f"rank {rank} on ") and len(failure.evidence) == 4
    assert "its last event is STEP_BEGIN" in failure.evidence[0]


def test_what_was_seen_before_the_stop_counts(tmp_path: Path) -> None:
    """The stop lets a frozen container go on: what its launcher writes then is of no use."""
    nodes = two_nodes(tmp_path, r0={"waits_in": None})
    for node, seconds in zip(nodes, (1.0, 14.0), strict=True):
        ranks = node.node_ranks()
        assert ranks is not None
        waiting = [rank.model_copy(update={"waits_in": "all_reduce"}) for rank in ranks.ranks]
        seen = ranks.model_copy(update={"ranks": waiting})
        node.look = NodeLook(ranks=seen, silent_seconds=seconds)
    judgement = judge(nodes, ended_early=TIMEOUT)
    assert "rank 2 on node2: hangs: its launcher no longer reports, for 14.0 s" in judgement.reason
    assert "so do rank 3 on node2" in judgement.reason


def test_who_waited_before_the_stop_is_not_blamed_for_what_the_stop_did(tmp_path: Path) -> None:
    nodes = two_nodes(tmp_path, r0={"waits_in": None})
    for node in nodes:
        ranks = node.node_ranks()
        assert ranks is not None
        then = [rank.model_copy(update={"waits_in": None if rank.rank == 3 else "barrier"}) for rank in ranks.ranks]
        node.look = NodeLook(ranks=ranks.model_copy(update={"ranks": then}), silent_seconds=1.0)
    failure = judge(nodes, ended_early=TIMEOUT).first_failure
    assert failure is not None and failure.rank == 3


def test_a_container_that_is_paused_is_named_and_not_its_ranks(tmp_path: Path) -> None:
    nodes = two_nodes(tmp_path, r0={"waits_in": None})
    nodes[1].circumstances = (
        Circumstance(kind=CircumstanceKind.PAUSED, words="its container is paused (docker pause)"),
    )
    judgement = judge(nodes, ended_early=TIMEOUT)
    assert judgement.reason == f"{TIMEOUT[1]}; node2: no exit code: its container is paused (docker pause)"
    assert judgement.first_failure is not None and judgement.first_failure.lost


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "4 ranks hang, in all_reduce, none behind the others"),
        ({"moved_ms": WRITTEN_MS - 1000}, "every rank was still progressing"),
    ],
)
def test_what_cannot_be_told_says_why(values: dict[str, Any], why: str, tmp_path: Path) -> None:
    nodes = two_nodes(tmp_path, **{f"r{rank}": values for rank in range(4)})
    judgement = judge(nodes, ended_early=TIMEOUT)
    failure = judgement.first_failure
    assert failure is not None and (failure.host, failure.rank) == (None, None)
    assert judgement.reason == f"{TIMEOUT[1]}; who is to blame cannot be determined: {why}"
    assert len(failure.evidence) == 4


def test_counts_of_ranks_that_get_on_are_not_compared(tmp_path: Path) -> None:
    """They are taken at different moments."""
    running = {"moved_ms": WRITTEN_MS - 100, "waits_in": None}
    nodes = two_nodes(tmp_path, r0=running, r1=running | {"collectives": {"0": 9000}}, r2=running, r3=running)
    assert "every rank was still progressing" in judge(nodes, ended_early=TIMEOUT).reason


def test_hosts_without_such_a_record_are_no_reason_to_name_anybody(tmp_path: Path) -> None:
    nodes = two_nodes(tmp_path)
    for node in nodes:
        (node.folder / "rank_states.json").write_bytes(b"\xff[")
    assert "cannot be determined: no launcher reported its ranks" in judge(nodes, ended_early=TIMEOUT).reason


def left(folder: Path, rank: int, at_ms: float, **values: Any) -> NodeOutcome:
    """A node whose rank left with 0 so many milliseconds after the start, while the other lost its peer."""
    other = 1 - rank
    lost = rank_failure(other, 1000, exit_code=1, message="Connection reset by peer", lost_peer=True)
    node = outcome(folder, exit_code=1, record=node_exit(1, [lost]), until=Event.STEP_END)
    at_us = START_MS * 1000 + round(at_ms * 1000)
    end = {"left_us": at_us, "left_code": 0, "ended_us": at_us + 250_000, "exit_code": 0}
    return states(node, **{f"r{rank}": {**end, **values}})


def test_who_left_with_0_is_named_and_the_peer_is_a_witness(tmp_path: Path) -> None:
    judgement = judge([left(tmp_path, 1, 999.8)], ended_early=None)
    assert judgement.reason == (
        "rank 1 on node1: exit code 0: it exited early, without FINISHED; its last event is STEP_END"
    )
    assert judgement.first_failure is not None
    assert judgement.first_failure.evidence[1] == "rank 0 on node1: Connection reset by peer"


@pytest.mark.parametrize("offset", [100.0, -100.0])
@pytest.mark.parametrize(("left_ms", "named"), [(500, 2), (1500, 0)])
def test_who_left_first_is_told_across_clocks(left_ms: int, named: int, offset: float, tmp_path: Path) -> None:
    """Rank 0 broke after one second; when rank 2 left, its host's clock was minutes apart."""
    broke = node_exit(7, [rank_failure(0, 1000)])
    nodes = [
        outcome(tmp_path, "node1", exit_code=7, record=broke, until=Event.STEP_END),
        outcome(*(tmp_path, "node2", 1, (2, 3)), until=Event.STEP_END, clock_offset=offset),
    ]
    at_us = START_MS * 1000 + left_ms * 1000 + round(offset * 1e6)
    states(nodes[1], r2={"left_us": at_us, "left_code": 0, "ended_us": at_us, "exit_code": 0})
    failure = judge(nodes, ended_early=None).first_failure
    assert failure is not None and failure.rank == named
    assert named != 2 or f"left at {START_MS / 1000 + 0.5:.6f} (head node's clock)" in failure.evidence[0]


def test_who_was_ended_while_it_left_left_all_the_same(tmp_path: Path) -> None:
    node = left(tmp_path, 1, 999.8, exit_code=None, signal="SIGTERM")
    failure = judge([node], ended_early=None).first_failure
    assert failure is not None and failure.rank == 1


def test_a_rank_that_finished_before_the_others_is_told(tmp_path: Path) -> None:
    """It did one step less than its peer, which then lost it: which of them is right cannot be told."""
    node = left(tmp_path, 1, 999.8)
    states(node, r0={"moved_ms": WRITTEN_MS}, r1={"left_us": START_MS * 1000, "left_code": 0, "exit_code": 0})
    (node.folder / "rank1.out.log").write_text(perflog(1, {"correct": "pass"}))
    judgement = judge([node], ended_early=None)
    assert judgement.reason == (
        "who is to blame cannot be determined: the failed ranks lost others, and only rank 1 on node1 had exited, with"
        " FINISHED: they differ in what they did"
    )
    assert judgement.first_failure is not None
    assert "rank 0 on node1: Connection reset by peer" in judgement.first_failure.evidence


def test_a_code_that_only_its_parent_got_is_told_by_the_launch_s_record(tmp_path: Path) -> None:
    node = left(tmp_path, 1, 999.8, left_us=None, left_code=None, exit_code=None)
    failure = judge([node], ended_early=None).first_failure
    assert failure is not None and (failure.rank, failure.exit_code) == (1, 0)


@pytest.mark.parametrize("end", [{"signal": "SIGTERM"}, {"error": "torch cannot be used on this host"}])
def test_no_code_follows_from_the_record_of_a_launcher_that_was_ended_itself(
    end: dict[str, Any], tmp_path: Path
) -> None:
    """It ended its ranks and lists none of them: that they are not listed does not mean that they left with 0."""
    node = left(tmp_path, 1, 999.8, left_us=None, left_code=None, exit_code=None)
    node_exit(143, **end).write(node.folder)
    judgement = judge([node], ended_early=None)
    assert judgement.verdict is Verdict.FAIL and "exited early" not in judgement.reason, judgement.reason
    assert judgement.first_failure is not None and judgement.first_failure.rank is None


def test_who_left_because_another_failed_is_no_cause(tmp_path: Path) -> None:
    """Rank 0 broke by itself; rank 1 was told to stop and left in order, 20 ms later."""
    node = left(tmp_path, 1, 1020.0)
    node_exit(7, [rank_failure(0, 1000)]).write(node.folder)
    failure = judge([node], ended_early=None).first_failure
    assert failure is not None and (failure.rank, failure.exit_code) == (0, 7)


def test_a_rank_that_gave_up_waiting_is_no_cause(tmp_path: Path) -> None:
    """Rank 0's collective timed out; rank 1, which never came to it, was ended by torchrun."""
    waited = rank_failure(0, 50_000, exit_code=1, message="Timed out waiting 30000ms for recv", waited=True)
    ended = rank_failure(1, 50_100, exit_code=None, signal="SIGKILL", stopped=True)
    node = outcome(tmp_path, exit_code=1, record=node_exit(1, [waited, ended]), until=Event.STEP_BEGIN)
    states(node, r1={"collectives": {"0": 17}, "waits_in": None, "ended_us": WRITTEN_MS * 1000, "signal": "SIGKILL"})
    judgement = judge([node], ended_early=None)
    assert judgement.first_failure is not None and judgement.first_failure.rank == 1
    assert judgement.reason.startswith("rank 1 on node1: hangs: it has begun 17 collectives")
    assert judgement.first_failure.evidence[-1].startswith("rank 0 on node1: Timed out waiting")


def test_of_ranks_that_only_lost_their_peers_none_is_named(tmp_path: Path) -> None:
    lost = [rank_failure(rank, 1000 + rank, message="Connection reset by peer", lost_peer=True) for rank in (0, 1)]
    node = states(outcome(tmp_path, exit_code=1, record=node_exit(1, lost), until=Event.STEP_BEGIN))
    judgement = judge([node], ended_early=None)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.first_failure is not None and judgement.first_failure.host is None
    assert judgement.reason.startswith("who is to blame cannot be determined: every failed rank lost another")
    assert judgement.first_failure.evidence[-1] == "rank 1 on node1: Connection reset by peer"


def test_an_engine_that_is_gone_is_named_though_its_ranks_lost_their_peers(tmp_path: Path) -> None:
    """The containers of an engine that crashed go on; once their peers are stopped they complain, too."""
    lost = [rank_failure(2, 9000, lost_peer=True), rank_failure(3, 9001, lost_peer=True)]
    nodes = [
        outcome(tmp_path, "node1", exit_code=143, record=node_exit(143), stopped=True, until=Event.STEP_BEGIN),
        outcome(*(tmp_path, "node2", 1, (2, 3)), exit_code=None, record=node_exit(1, lost), until=Event.STEP_BEGIN),
    ]
    nodes[1].error = "node2: its Docker engine does not answer"
    judgement = judge(nodes, ended_early=None)
    failure = judgement.first_failure
    assert failure is not None and (failure.host, failure.rank) == ("node2", None), judgement.reason
    assert "Docker engine" in judgement.reason


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"left_us": None, "left_code": None, "exit_code": 0}, None),
        ({"last_event": "FINISHED"}, None),
        ({"last_event": "STEP_END"}, 1),
    ],
)
def test_nothing_follows_from_what_a_log_that_was_cut_does_not_have(
    state: dict[str, Any], named: int | None, tmp_path: Path
) -> None:
    """Rank 1 left with 0; that its FINISHED is not in its log tells nothing, unless the rank said what was its last."""
    node = left(tmp_path, 1, 1000.0, **state)
    node.cut = frozenset({"rank1.out.log"})
    judgement = judge([node], ended_early=None)
    assert judgement.verdict is Verdict.FAIL
    if named is None:
        assert "early" not in judgement.reason and "without FINISHED" not in judgement.reason, judgement.reason
    else:
        assert judgement.first_failure is not None and judgement.first_failure.rank == named


def test_a_round_is_not_passed_on_a_log_that_was_cut_before_its_end(tmp_path: Path) -> None:
    node = outcome(tmp_path, until=Event.STEP_BEGIN)
    node.cut = frozenset({"rank0.out.log", "rank1.out.log"})
    judgement = judge([node], ended_early=None)
    assert judgement.verdict is Verdict.FAIL and "whether it finished is unknown" in judgement.reason
    assert judgement.partial is None


TIMED_OUT = {"exit_code": 1, "message": "The client socket has timed out", "in_communication": True}


@pytest.mark.parametrize(("killed_ms", "named"), [(900, 2), (1150, 2), (9000, 0)])
def test_an_error_in_communication_is_an_effect_of_what_failed_until_then(
    killed_ms: int, named: int, tmp_path: Path
) -> None:
    """No list of texts knows it; the clocks of two hosts differ by milliseconds."""
    failures = [[rank_failure(0, 1000, **TIMED_OUT)], [rank_failure(2, killed_ms, exit_code=None, signal="SIGSEGV")]]
    nodes = [
        outcome(tmp_path, f"node{n + 1}", n, (2 * n, 2 * n + 1), exit_code=1, record=node_exit(1, failures[n]))
        for n in (0, 1)
    ]
    failure = judge(nodes, ended_early=None).first_failure
    assert failure is not None and failure.rank == named


def test_a_host_that_was_lost_is_named_before_who_could_not_connect(tmp_path: Path) -> None:
    nodes = [
        outcome(tmp_path, "node1", exit_code=1, record=node_exit(1, [rank_failure(0, 1000, **TIMED_OUT)])),
        outcome(*(tmp_path, "node2", 1, (2, 3)), exit_code=None, record=None),
    ]
    alone = judge(nodes, ended_early=None).first_failure
    assert alone is not None and (alone.host, alone.rank) == ("node1", 0)
    nodes[1].error = "node2: out of reach"
    lost = judge(nodes, ended_early=None).first_failure
    assert lost is not None and (lost.host, lost.rank) == ("node2", None)
    nodes[0].error = "node1: its Docker engine does not answer"
    both = judge(nodes[:1], ended_early=None).first_failure
    assert both is not None and both.rank is None and "Docker engine" in both.message


def test_the_reason_of_a_traceback_is_its_exception_even_where_the_text_goes_on() -> None:
    message = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nCheckError: types differ\n\nTip: try'
    )
    assert _in_a_line(message) == "CheckError: types differ"
    assert (_in_a_line("first\nlast\n"), _in_a_line("")) == ("last", "")
