from pathlib import Path

import pytest

from common.memory_group import MemoryGroup
from protocol.node_record import RankFailure
from training.benchmarks.driver.launch.agent import local_world_size, master, parse_options
from training.benchmarks.driver.launch.failures import SeenFailure, StartError, explained, ordered


def seen(
    rank: int,
    time_ms: int,
    ended_ms: int,
    *,
    recorded: bool,
    signal: str | None = None,
    lost_peer: bool = False,
    in_communication: bool = False,
    by_itself: bool = True,
    was_watched: bool = True,
) -> SeenFailure:
    failure = RankFailure(
        rank=rank,
        local_rank=rank,
        pid=100 + rank,
        exit_code=None if signal else 1,
        signal=signal,
        time_ms=time_ms,
        message="",
        stopped=signal in ("SIGTERM", "SIGKILL"),
        lost_peer=lost_peer,
        in_communication=in_communication,
    )
    return SeenFailure(
        failure=failure, ended_ms=ended_ms, recorded=recorded, by_itself=by_itself, was_watched=was_watched
    )


def test_a_sudden_end_that_was_seen_late_still_comes_before_the_peers_errors() -> None:
    failures = ordered(
        [
            seen(0, 1000, 1090, recorded=True),
            seen(1, 1003, 1003, recorded=False, signal="SIGKILL"),
            seen(2, 1001, 1095, recorded=True),
        ]
    )
    assert [(each.rank, each.time_ms) for each in failures] == [(1, 1000), (0, 1000), (2, 1001)]
    assert not failures[0].stopped


def test_who_lost_a_peer_is_no_cause_whatever_the_clock_says() -> None:
    failures = ordered(
        [
            seen(0, 1000, 1100, recorded=True, lost_peer=True),
            seen(1, 1300, 1300, recorded=False, signal="SIGSEGV"),
            seen(2, 1200, 1200, recorded=True, lost_peer=True),
        ]
    )
    assert [each.rank for each in failures] == [1, 0, 2]
    # All of them lost a peer that is on another node: then time alone counts.
    elsewhere = [seen(rank, 1000 - rank, 1100, recorded=True, lost_peer=True) for rank in range(3)]
    assert [each.rank for each in ordered(elsewhere)] == [2, 1, 0]


def test_ranks_that_torchrun_ended_after_an_error_are_not_its_cause() -> None:
    failures = ordered(
        [
            seen(1, 1000, 1100, recorded=True),
            seen(0, 1190, 1190, recorded=False, signal="SIGTERM"),
            seen(2, 1100, 1100, recorded=False, signal="SIGTERM"),
        ]
    )
    assert [(each.rank, each.stopped) for each in failures] == [(1, False), (2, True), (0, True)]


def test_of_ends_in_the_same_millisecond_the_stopped_one_is_later() -> None:
    failures = ordered([seen(1, 1000, 1000, recorded=False), seen(0, 1000, 1000, recorded=False, signal="SIGTERM")])
    assert [each.rank for each in failures] == [1, 0]


def test_a_rank_that_somebody_terminated_is_a_cause() -> None:
    failures = ordered([seen(0, 1000, 1000, recorded=False, signal="SIGTERM"), seen(1, 1001, 1100, recorded=True)])
    assert (failures[0].rank, failures[0].stopped) == (0, False)


def test_who_was_ended_before_it_was_watched_comes_after_who_was_noticed_first() -> None:
    """torchrun's time for it is a whole second, 900 ms too early; both as losing.py recorded them."""
    failures = ordered(
        [
            seen(1, 1900, 1900, recorded=False, signal="SIGKILL", by_itself=False),
            seen(0, 1000, 1000, recorded=False, signal="SIGTERM", by_itself=False, was_watched=False),
        ]
    )
    assert [(each.rank, each.stopped, each.time_ms) for each in failures] == [(1, False, 1900), (0, True, 1000)]


def test_what_a_rank_recorded_before_it_was_ended_tells_nothing_of_when_the_others_ended() -> None:
    """The launcher's signal reached rank 0 first; rank 1 was still leaving. Times as losing.py recorded them."""
    failures = ordered(
        [
            seen(2, 1350, 1350, recorded=False, signal="SIGKILL", by_itself=False),
            seen(0, 1391, 1391, recorded=False, signal="SIGTERM", by_itself=False),
            seen(1, 1350, 1406, recorded=True, lost_peer=True, by_itself=False),
        ]
    )
    assert [(each.rank, each.stopped, each.is_effect) for each in failures] == [
        (2, False, False),
        (1, False, True),
        (0, True, True),
    ]


@pytest.mark.parametrize(("killed_ms", "lost"), [(990, True), (1190, True), (1300, False)])
def test_an_error_in_communication_without_a_known_text_is_an_effect_of_what_failed_before(
    killed_ms: int, lost: bool
) -> None:
    failures = ordered(
        [
            seen(0, 1000, 1250, recorded=True, in_communication=True),
            seen(1, killed_ms, killed_ms, recorded=False, signal="SIGSEGV"),
        ]
    )
    assert failures[0].rank == (1 if lost else 0)
    assert [each.lost_peer for each in failures if each.rank == 0] == [lost]


def test_only_a_sigkill_of_the_first_is_put_down_to_the_memory(tmp_path: Path) -> None:
    (tmp_path / "limit").write_text("4096\n")
    group = MemoryGroup(counter=tmp_path / "none", limit_file=tmp_path / "limit")
    killed = seen(1, 1000, 1000, recorded=False, signal="SIGKILL").failure.model_copy(update={"message": "gone"})
    other = seen(0, 1001, 1001, recorded=True).failure
    first, second = explained([killed, other], group, kills=1)
    assert first.message == "out of memory (limit: 4096 bytes): the kernel ended it; gone" and second == other
    assert explained([killed, other], group, kills=0) == [killed, other]
    assert explained([other, killed], group, kills=1) == [other, killed]


def test_options_are_torchruns_own_and_the_command_is_wrapped() -> None:
    arguments = parse_options(
        ["--nnodes", "2", "--nproc-per-node=4", "--master_addr", "h", "--master_port", "5"], ["x"]
    )
    assert master(arguments) == ("h", 5)
    assert local_world_size(arguments) == 4
    assert arguments.training_script == "training.benchmarks.driver.launch.rank"
    assert arguments.training_script_args == ["x"]
    assert arguments.module


def test_a_rendezvous_endpoint_is_the_master() -> None:
    arguments = parse_options(["--rdzv_backend", "c10d", "--rdzv_endpoint", "node1:29400"], ["x"])
    assert master(arguments) == ("node1", 29400)


def test_a_users_shutdown_timeout_and_signals_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_options(["--shutdown_timeout", "9"], ["x"]).shutdown_timeout == 9
    assert parse_options(["--signals_to_handle", "SIGTERM"], ["x"]).signals_to_handle == "SIGTERM"
    assert parse_options([], ["x"]).shutdown_timeout == 5
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7")
    assert parse_options([], ["x"]).shutdown_timeout is None


def test_torchruns_refusal_is_passed_on() -> None:
    with pytest.raises(StartError, match=r"refuses its options: .*--nnode5"):
        parse_options(["--nnode5", "2"], ["x"])
    with pytest.raises(StartError, match="--nproc_per_node several: Unsupported"):
        local_world_size(parse_options(["--nproc_per_node", "several"], ["x"]))
