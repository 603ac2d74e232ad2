"""The same thing on many hosts at once."""

import threading
import time

import pytest

from run_benchmarks.errors import ConnectError, HostError
from run_benchmarks.hosts.fleet import MAX_PARALLEL, for_each


def test_results_and_errors_are_kept_apart_in_the_order_asked() -> None:
    def work(number: int) -> int:
        time.sleep(0.02 * (5 - number))
        if number in (2, 3):
            raise ConnectError(f"node{number}", "is dead")
        return number * 10

    result = for_each({f"node{number}": number for number in range(5)}, work)
    assert list(result.succeeded.items()) == [("node0", 0), ("node1", 10), ("node4", 40)]
    assert list(result.failed) == ["node2", "node3"]
    assert str(result.failed["node3"]) == "node3: is dead"
    with pytest.raises(HostError, match="node2: is dead"):
        result.raise_first()


def test_all_well_gives_the_results() -> None:
    assert for_each({"a": 1, "b": 2}, str).raise_first() == {"a": "1", "b": "2"}
    assert for_each({}, str).raise_first() == {}


def test_everything_runs_at_once_and_never_more_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(8, timeout=20)  # breaks where fewer than eight run at once

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait()
        with lock:
            running -= 1

    for_each({str(number): number for number in range(32)}, work, concurrency=8).raise_first()
    assert most == 8
    assert MAX_PARALLEL == 64


def test_a_defect_of_ours_is_raised_after_all_have_ended() -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise ZeroDivisionError
        time.sleep(0.1)
        ended.append(number)

    with pytest.raises(ZeroDivisionError):
        for_each({str(number): number for number in range(4)}, work)
    assert sorted(ended) == [1, 2, 3]


def test_what_a_host_s_answer_breaks_at_is_its_error_and_a_full_disk_ours() -> None:
    def work(error: Exception | None) -> int:
        if error is not None:
            raise error
        return 1

    asked = for_each({"node1": IndexError("no such word"), "node2": None}, work, reads_hosts=True)
    assert asked.succeeded == {"node2": 1}
    error = asked.failed["node1"]
    assert isinstance(error, HostError) and error.host == "node1"
    assert str(error) == "node1: cannot be handled: IndexError: no such word"
    with pytest.raises(OSError, match="full"):
        for_each({"node1": OSError("full"), "node2": None}, work, reads_hosts=True)
