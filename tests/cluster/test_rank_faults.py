"""A rank dies, in every way there is: all peers on all hosts are gone, the verdict says who and how, the run goes on.

One run of benchmarks that break (tests/cluster/faulty); they also print the secrets they were given.
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import Answer, Controller, rank_processes, wait_until
from tests.cluster.faulty_project import CONFIG, project

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(900)]
PEERS_SECONDS = 15.0 + 5.0  # with some slack: two test beds share the machine
MEMORY_BYTES = 1500 << 20
TOKEN, SECRET = "hf_0123456789-abcdef", "nobodys-business-but-ours"
MARKS = "/var/tmp/faults"
# So long that the four ranks are seen beside one another: two hosts start theirs seconds apart.
APART: dict[str, object] = {"pause": 0.1, "after": 50, "lines": 60}
FAULTS: dict[str, dict[str, object]] = {
    # Nobody but the controller can tell the ranks of the other host.
    "EXITS": {"fault": "exit", "rank": 3, "steps": 1_000_000, **APART, "together": False},
    "SEGFAULTS": {"fault": "segfault", "rank": 1, "unless": f"{MARKS}/once", "steps": 80, **APART},
    "GROWS": {"fault": "memory", "rank": 2, "steps": 1_000_000, **APART},
    "KILLED": {"steps": 1_000_000},
}
ROUNDS = ["EXITS", "SEGFAULTS", "SEGFAULTS again", "GROWS", "KILLED"]


@pytest.fixture(scope="module")
def answer(testbed: TestBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    """The run, watched: from the end of the first rank of a round on, its peers have so many seconds."""
    folder = tmp_path_factory.mktemp("faults")
    controller = Controller(folder, testbed, project(folder / "project", {"SERVICE_SECRET": SECRET}))
    cases: dict[str, dict[str, object]] = {
        name: {"model": "faulty", "config": CONFIG, "overrides": overrides} for name, overrides in FAULTS.items()
    }
    cases["SEGFAULTS"]["retries"] = 1
    options = f"--memory {MEMORY_BYTES} -v {MARKS}:{MARKS} -e HUGGING_TOKEN={TOKEN}"
    controller.configure_test(cases, ACCE_CONTAINER_OPT=options)
    for host in testbed.hosts:
        host.exec(["mkdir", "-p", MARKS])
    process = controller.start()
    seen: set[int] = set()
    try:
        for case in ROUNDS:
            ranks = _ranks(process, seen)
            seen |= {rank.pid for rank in ranks.values()}
            if case == "KILLED":
                _wait_for_work(controller, testbed, case)
                ranks[3].send_signal(signal.SIGKILL)
            if case == "SEGFAULTS again":
                continue  # its mark is there
            print(f"{case}: peers gone {_seconds_of_the_peers(case, list(ranks.values())):.1f} s after the first rank")
        yield controller.finish(process)
        assert controller.containers() == []
    finally:
        controller.end()


def _ranks(process: subprocess.Popen[str], seen: set[int]) -> dict[int, psutil.Process]:
    """The four ranks of the next round, once all of them are there."""
    found: dict[int, psutil.Process] = {}

    def all_there() -> bool:
        nonlocal found
        if process.poll() is not None:
            pytest.fail(f"run.py has ended: {process.communicate()[0][-3000:]}")
        found = {rank: each for rank, each in rank_processes().items() if each.pid not in seen}
        return len(found) == 4

    wait_until("four ranks", all_there)
    return found


def _wait_for_work(controller: Controller, testbed: TestBed, case: str) -> None:
    """Until rank 3's log on its host says that it is at work."""
    log = f"{controller.logs}/.hosts/*/{case}/round1/*/rank3.out.log"
    begun = ["sh", "-c", f"grep -qs TRAIN_START {log}"]
    wait_until("work of rank 3", lambda: testbed.hosts[1].exec(begun, check=False).returncode == 0)


def _seconds_of_the_peers(case: str, ranks: list[psutil.Process]) -> float:
    wait_until(f"the fault of {case}", lambda: not all(map(_lives, ranks)))
    began = time.monotonic()
    wait_until(f"the end of the peers of {case}", lambda: not any(map(_lives, ranks)), PEERS_SECONDS)
    return time.monotonic() - began


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def failure_of(answer: Answer, case: str, testbed: TestBed, rank: int) -> dict[str, Any]:
    """The first failure of a round that failed because of `rank`."""
    record = answer.round_record(case)
    failure = dict(record["first_failure"])
    host = testbed.hosts[rank // 2].address
    assert record["verdict"] == "fail", record
    assert (failure["host"], failure["rank"]) == (host, rank), record
    assert record["reason"].startswith(f"rank {rank} on {host}: "), record["reason"]
    assert record["reason"] in answer.output
    assert all(f"rank{each}.out.log" in node["files"] for node in record["nodes"] for each in node["ranks"])
    return failure


def test_an_exit_code_is_told_with_the_last_lines(answer: Answer, testbed: TestBed) -> None:
    failure = failure_of(answer, "EXITS", testbed, 3)
    assert (failure["exit_code"], failure["signal"]) == (7, None)
    lines = failure["log_tail"].splitlines()
    assert len(lines) == 50 and "line 59; token=***" in lines and "line 1; token=***" not in lines, lines


def test_a_segmentation_fault_leaves_its_stack(answer: Answer, testbed: TestBed) -> None:
    failure = failure_of(answer, "SEGFAULTS", testbed, 1)
    assert (failure["exit_code"], failure["signal"]) == (None, "SIGSEGV")
    assert "Fatal Python error: Segmentation fault" in failure["log_tail"] and "_break" in failure["log_tail"]


def test_lack_of_memory_is_told_from_a_kill(answer: Answer, testbed: TestBed) -> None:
    for case, rank, expected in (("GROWS", 2, True), ("KILLED", 3, False)):
        failure = failure_of(answer, case, testbed, rank)
        assert failure["signal"] == "SIGKILL"
        reason = answer.round_record(case)["reason"]
        assert (f"out of memory (limit: {MEMORY_BYTES} bytes)" in reason) is expected, reason


def test_the_rest_of_the_run_goes_on_and_a_retry_may_pass(answer: Answer) -> None:
    assert answer.exit_code == 1, answer.output
    verdicts = {case["name"]: case["rounds"] for case in answer.run_record()["cases"]}
    assert verdicts == {"EXITS": ["fail"], "SEGFAULTS": ["pass"], "GROWS": ["fail"], "KILLED": ["fail"]}
    first, second = (answer.round_record("SEGFAULTS", attempt=attempt) for attempt in (1, 2))
    assert (first["verdict"], second["verdict"]) == ("fail", "pass")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["fail", "pass", "fail", "fail"]


def test_no_secret_is_kept_whoever_wrote_it(answer: Answer, testbed: TestBed) -> None:
    assert answer.folder is not None
    told = [path for path in answer.folder.rglob("*") if path.is_file() and _has_secret(path.read_bytes())]
    assert told == [] and not _has_secret(answer.output.encode())
    log = (answer.folder / "KILLED/round1" / f"{testbed.hosts[0].address}_noderank0" / "rank0.out.log").read_text()
    assert "HUGGING_TOKEN=*** service.api_key=***" in log
    environment = json.loads((answer.folder / "KILLED/round1/round.json").read_text())["nodes"][0]["environment"]
    assert (environment["HUGGING_TOKEN"], environment["SERVICE_SECRET"]) == ("***", "***")
    for host in testbed.hosts:
        # What stays on a host: the code, and whatever a round might have left. A checkout in /tmp is there, too.
        places = ["/root", "/tmp", "/var/tmp", "/var/log/dockerd.log"]
        changed = ["-newerct", f"@{answer.run_record()['started_ms'] // 1000 - 60}"]
        search = ["find", *places, "-path", str(images.REPOSITORY), "-prune", "-o", "-type", "f", *changed]
        grep = ["-exec", "grep", "-slF", "-e", TOKEN, "-e", SECRET, "{}", "+"]
        found = host.exec([*search, *grep], check=False, timeout=200).stdout
        assert found == "", f"{host.name}: {found}"


def _has_secret(data: bytes) -> bool:
    return TOKEN.encode() in data or SECRET.encode() in data


def test_results_are_for_their_owner_and_the_group(answer: Answer) -> None:
    assert answer.folder is not None
    for path in (answer.folder, *answer.folder.rglob("*")):
        assert path.stat().st_mode & 0o027 == 0, f"{path}: {path.stat().st_mode:o}"
