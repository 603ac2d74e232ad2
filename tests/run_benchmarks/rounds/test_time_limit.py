"""RUN_TIME_LIMIT: the round that runs is ended and collected, what is left is skipped, a resume counts on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import InputProblems, InterruptedRunError, RunTimeLimitError
from run_benchmarks.rounds.watch import Watch
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.session import Session
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import Journal
from run_benchmarks.state.own_clock import own_clock
from tests.cluster.faulty_project import LONG as ENDLESS
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load
from tests.run_benchmarks.rounds.contexts import context

LONG = {**ENDLESS, "nproc": 1, "repeat": 2, "retries": 3}
# A busy machine needs more than ten seconds until the ranks report.
LIMIT = 25.0
LIMIT_REASON = f"the run reached its RUN_TIME_LIMIT of {LIMIT:g} s"
REASON = f"{LIMIT_REASON}; who is to blame cannot be determined: every rank was still progressing"


def test_time_is_up() -> None:
    interruption = Interruption("clean")
    interruption.check()
    assert interruption.seconds_left(120.0) == 120.0 and not interruption.time_is_up()
    interruption.limit_time(200.0, used=-1e6)  # by a clock that was set back meanwhile
    assert 199.0 < interruption.seconds_left(1e9) <= 200.0
    interruption.limit_time(100.0, used=40.0)
    assert 59.0 < interruption.seconds_left(120.0) <= 60.0 and interruption.seconds_left(5.0) == 5.0
    interruption.limit_time(100.0, used=100.0)
    assert interruption.time_is_up() and not interruption.is_set()
    with pytest.raises(RunTimeLimitError, match="RUN_TIME_LIMIT of 100 s"):
        interruption.seconds_left(1.0)


def test_a_resumed_run_has_only_the_rest_of_its_time(load: Load, tmp_path: Path) -> None:
    """Of its first start, however often it is resumed."""
    prepared = prepare(load(TEST + "RUN_TIME_LIMIT = 1000\n"), "run20261121191924")
    with Interruption("clean") as interruption:
        session = Session(prepared, tmp_path, interruption, ["run.py"])
        started = session._started()
        for ago_s in (400, 60):
            Journal(tmp_path).append(started.model_copy(update={"time_ms": started.time_ms - ago_s * 1000}))
        session._begin()
        assert 500.0 < interruption.seconds_left(10_000.0) <= 600.0


def test_a_clock_that_was_set_back_does_not_lengthen_a_round_that_is_taken_over(load: Load, tmp_path: Path) -> None:
    prepared = prepare(load(TEST), "run20261121191924")
    own = context(prepared, tmp_path, hosts={}, reports={}, runtime=prepared.runtime())
    (case,) = prepared.plan.cases
    now = own_clock().now()
    later, fresh, early = (Watch(own, case, 1, {}, elapsed)._deadline - now for elapsed in (-1e6, 0.0, 10.0))
    assert case.time_limit <= later <= fresh <= case.time_limit + 5.0 and early <= fresh - 5.0


def test_a_part_ends_with_the_run_and_may_end_before_it() -> None:
    with Interruption("clean") as whole:
        whole.limit_time(100.0, used=0.0)
        first, second = whole.part(), whole.part()
        first.end("its job is over")
        second.end_within(50.0, "the time of its job is over")
        assert not whole.is_set() and not second.is_set() and first.reason == "its job is over"
        assert second.seconds_left(1e9) <= 50.0 < whole.seconds_left(1e9)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (first.reason, second.reason) == ("its job is over", "interrupted by SIGTERM")
        assert whole.part().is_set()


def test_a_signal_goes_before_the_limit() -> None:
    with Interruption("clean") as interruption:
        interruption.limit_time(1.0, used=2.0)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(InterruptedRunError):
            interruption.check()


@pytest.mark.parametrize("value", ["0", "-1", '"day"', "True", "float('inf')"])
def test_a_limit_is_a_number_of_seconds(value: str, load: Load) -> None:
    with pytest.raises(InputProblems, match="RUN_TIME_LIMIT"):
        load(TEST + f"RUN_TIME_LIMIT = {value}\n")
    assert load().test.RUN_TIME_LIMIT is None


class RunPy:
    """run.py on this machine with two long cases, its files and results in one folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        (folder / "cluster_conf.py").write_text(CLUSTER)
        values: dict[str, Any] = {"VENDOR": "cpu", "RUNTIME": "process", "RUN_TIME_LIMIT": LIMIT}
        values |= {"FLAGPERF_PATH_HOST": str(folder / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(folder / "result")}
        values |= {"CASES": ["FIRST", "SECOND"], "FIRST": LONG, "SECOND": LONG}
        (folder / "test_conf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))

    def start(self, *words: str) -> subprocess.Popen[str]:
        files = [
            "--cluster-conf",
            str(self.folder / "cluster_conf.py"),
            "--test-conf",
            str(self.folder / "test_conf.py"),
        ]
        argv = [sys.executable, str(self.root / "run_benchmarks" / "run.py"), *files, *words]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def call(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        output, _ = process.communicate(timeout=200)
        return process.returncode, output

    @property
    def run(self) -> Path:
        return next((self.folder / "result").glob("run*"))

    def check_records(self) -> None:
        """One round ended by the limit and collected, nothing else begun."""
        record = json.loads((self.run / "run.json").read_text())
        assert (record["verdict"], record["exit_code"]) == ("timeout", 1)
        assert [(case["verdict"], case["reason"]) for case in record["cases"]] == [
            ("timeout", REASON),
            ("skipped", LIMIT_REASON),
        ]
        assert [case["rounds"] for case in record["cases"]] == [["timeout"], []]
        round_ = json.loads((self.run / "FIRST/round1/round.json").read_text())
        assert (round_["verdict"], round_["reason"], round_["attempt"]) == ("timeout", REASON, 1)
        assert {"rank0.out.log", "monitor.jsonl"} <= round_["nodes"][0]["files"].keys()
        assert not (self.run / "FIRST/round1_try2").exists() and not (self.run / "SECOND").exists()


@pytest.mark.timeout(600)
def test_a_run_ends_at_its_limit_and_a_resume_does_not_begin_it_anew(tmp_path: Path, root: Path) -> None:
    run_py = RunPy(tmp_path, root)
    code, output = run_py.call()
    assert code == 1, output
    run_py.check_records()
    started = json.loads((run_py.run / "run.json").read_text())["started_ms"]
    code, output = run_py.call("resume", run_py.run.name)
    assert code == 1 and "as recorded" in output and "Step 2" not in output, output
    run_py.check_records()
    assert json.loads((run_py.run / "run.json").read_text())["started_ms"] == started


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_round_that_outlived_its_controller_and_the_limit_is_ended_and_collected(tmp_path: Path, root: Path) -> None:
    run_py = RunPy(tmp_path, root)
    process = run_py.start()
    log = run_py.folder / "deploy"
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob("result/.hosts/*/FIRST/round1/*/rank0.out.log")):
        assert time.monotonic() < deadline and process.poll() is None, list(log.rglob("*"))
        time.sleep(0.1)
    process.kill()
    process.communicate()
    begun = json.loads((run_py.run / "journal.jsonl").read_text().splitlines()[0])["time_ms"] / 1000
    time.sleep(max(0.0, begun + LIMIT - time.time()))
    code, output = run_py.call("resume", run_py.run.name)
    assert code == 1 and "is taken over" in output, output
    run_py.check_records()
