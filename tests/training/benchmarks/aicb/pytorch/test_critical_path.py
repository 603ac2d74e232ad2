"""The critical path of iterations that are made by hand: where the time is, and on which rank the walk goes on."""

from training.benchmarks.aicb.pytorch.reporting.critical_path import PathCall, RankIteration, critical_path


def call(instance: str, issue: int, done: int, *, label: str = "all_reduce tp", waited: bool = True) -> PathCall:
    return PathCall(label, instance, issue, done, waited)


def test_a_late_rank_is_where_the_path_goes_on() -> None:
    """Rank 1 computes until 70 while rank 0 waits: of 80 that rank 0 spends in the call, 10 are the call's."""
    early = RankIteration(0, 90, [call("a", 0, 80)])
    late = RankIteration(0, 90, [call("a", 70, 80)])
    assert critical_path([early, late]) == {"program": 80, "all_reduce tp": 10}


def test_what_is_hidden_is_not_on_the_path() -> None:
    beside = call("g", 10, 50, label="all_gather dp", waited=False)
    own = RankIteration(0, 100, [beside, call("a", 60, 95)])
    assert critical_path([own, RankIteration(0, 100, [call("a", 60, 95)])]) == {"program": 65, "all_reduce tp": 35}


def test_a_pipeline_is_walked_from_stage_to_stage() -> None:
    """Stage 1 waits for stage 0's activation, computes and ends last."""
    first = RankIteration(0, 50, [call("0 to 1", 40, 45, label="isend pp")])
    second = RankIteration(0, 100, [call("0 to 1", 0, 45, label="irecv pp")])
    assert critical_path([first, second]) == {"program": 95, "irecv pp": 5}


def test_clocks_that_are_wrong_do_not_keep_the_walk_from_ending() -> None:
    """By the clocks the peer arrives after the end, and calls last no time at all."""
    one = RankIteration(0, 30, [call("a", 5, 10), call("b", 10, 10), call("c", 20, 20)])
    other = RankIteration(0, 29, [call("a", 25, 26), call("b", 26, 26), call("c", 27, 27)])
    found = critical_path([one, other])
    assert sum(found.values()) == 30 and min(found.values()) >= 0


def test_what_the_late_rank_did_before_is_on_the_path() -> None:
    """Rank 1 is late because of a call of its own, which rank 0, where the path begins, knows nothing of."""
    early = RankIteration(0, 91, [call("a", 0, 80)])
    late = RankIteration(0, 90, [call("own", 5, 60, label="all_gather dp"), call("a", 70, 80)])
    assert critical_path([early, late]) == {"all_gather dp": 55, "program": 26, "all_reduce tp": 10}
