"""An acceptance of this machine alone, as a user calls it: nothing of its hosts, ranks and record is made up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.acceptance.records import AcceptRecord
from run_benchmarks.acceptance.rungs import choice_of
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.results.loading import load_run

pytestmark = pytest.mark.torch


def test_this_machine_is_tested_and_its_record_says_so(tmp_path: Path) -> None:
    results = tmp_path / "results"
    settings = {
        "VENDOR": "cpu",
        "RUNTIME": "process",
        "FLAGPERF_PATH_HOST": str(tmp_path / "deploy"),
        "FLAGPERF_LOG_PATH_HOST": str(results),
    }
    (tmp_path / "test_conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    (tmp_path / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n')
    argv = [sys.executable, "run_benchmarks/run.py", "accept", "--rungs", "single", "--nproc", "1", "--budget", "10m"]
    argv += ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "--test-conf", str(tmp_path / "test_conf.py")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    said = done.stdout + done.stderr
    (file,) = results.glob("accept*/accept.json")
    record = AcceptRecord.model_validate_json(file.read_text())
    (rung,) = record.rungs
    (run,) = rung.runs
    (measured,) = load_run(results / run).rounds["ACCEPT_DEVICES"]
    assert measured.verdict.is_measured, said
    assert {step["test"] for step in measured.steps if "test" in step} == {*choice_of("cpu").device_overrides["tests"]}
    assert (rung.rung, rung.out, rung.unsteady, record.drain, record.nproc) == ("single", {}, {}, {}, 1), said
    # Who may not read the kernel log is told so, and is not ready; nothing else can be wrong.
    assert all(reason.startswith("not looked at on localhost: ") for reason in rung.reasons), said
    assert (record.ready, record.hosts["localhost"]) == ((False, "not tested") if rung.reasons else (True, "accepted"))
    assert done.returncode == (1 if rung.reasons else 0), said
    verdict = "NOT READY" if rung.reasons else "READY BY 1 OF 4 RUNGS"
    assert f"{verdict}: {int(record.ready)} of 1 host accepted" in said
