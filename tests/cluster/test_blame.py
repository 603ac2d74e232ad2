"""A rank leaves without a word, or stands still, on two real hosts: run.py names it, not a peer that noticed."""

from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller
from tests.cluster.faulty_project import CONFIG, project

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]
REPETITIONS = 10
STALL_LIMIT = 30.0
LEAVING: dict[str, dict[str, object]] = {
    "LEAVES": {"fault": "leave", "rank": 3},
    "VANISHES": {"fault": "vanish", "rank": 1},
    "RETURNS": {"fault": "return", "rank": 2},
}
STANDING: dict[str, dict[str, object]] = {
    "STOPS": {"fault": "stop", "rank": 1},
    "PRINTS": {"fault": "hang", "rank": 2, "prints": True},
    "APART": {"fault": "hang", "rank": 3, "together": False, "prints": True},
}


def run(folder: Path, testbed: TestBed, faults: dict[str, dict[str, object]], repeat: int = 1) -> Answer:
    controller = Controller(folder, testbed, project(folder / "project", {}))
    cases = {
        name: {
            "model": "faulty",
            "config": CONFIG,
            "repeat": repeat,
            "stall_limit": STALL_LIMIT,
            "overrides": {"steps": 1_000_000, "lines": 0, **overrides},
        }
        for name, overrides in faults.items()
    }
    controller.configure_test(cases, **PROCESS)
    try:
        return controller.call()
    finally:
        controller.end()


def assert_named(answer: Answer, testbed: TestBed, case: str, rank: int, index: int) -> None:
    record = answer.round_record(case, index)
    failure, host = record["first_failure"], testbed.hosts[rank // 2].address
    assert failure is not None, record["reason"]
    assert (failure["host"], failure["rank"]) == (host, rank), f"{record['reason']}: {failure['evidence']}"
    assert f"rank {rank} on {host}: " in record["reason"] and failure["evidence"]
    if case in LEAVING:
        assert record["verdict"] == "fail" and "exited early, without FINISHED" in record["reason"]
    else:
        assert record["verdict"] == "timeout" and "its stall limit" in record["reason"]
        assert ("process is stopped (state T)" in record["reason"]) is (case == "STOPS")


def test_on_two_hosts_the_rank_itself_is_named(testbed: TestBed, tmp_path: Path) -> None:
    faults = {name: (LEAVING | STANDING)[name] for name in ("LEAVES", "STOPS")}
    answer = run(tmp_path, testbed, faults)
    for case, settings in faults.items():
        assert_named(answer, testbed, case, int(str(settings["rank"])), 1)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", [*LEAVING, *STANDING])
def test_it_is_named_each_time(testbed: TestBed, tmp_path: Path, case: str) -> None:
    settings = (LEAVING | STANDING)[case]
    answer = run(tmp_path, testbed, {case: settings}, REPETITIONS)
    for index in range(1, REPETITIONS + 1):
        assert_named(answer, testbed, case, int(str(settings["rank"])), index)
