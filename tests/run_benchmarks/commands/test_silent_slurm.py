"""A Slurm that does not answer a command is said in one sentence, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from run_benchmarks.hosts.outages import IMPATIENT
from run_benchmarks.hosts.slurm.absence import SilentSlurmError
from run_benchmarks.results.records import DrainRecord, RunRecord, Verdict, write_record
from run_benchmarks.session import allocation
from run_benchmarks.state.exit_codes import EXIT_USAGE
from run_benchmarks.state.journal import Journal
from tests.run_benchmarks.calling import call
from tests.run_benchmarks.conftest import TEST

RUN = "run20261121191924"
SILENT = {
    "away": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "unknown": "squeue: fatal: Could not establish a configuration source",
}
"""Slurm's words (22.05) where slurmctld is down, and where no slurm.conf names one."""
TOOLS = ("squeue", "sinfo", "sbatch", "scontrol", "sacct", "scancel")


@pytest.fixture(params=[*SILENT, "not installed"])
def slurm(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Slurm's words; its commands say them, or are not there."""
    said, folder = SILENT.get(request.param, "No such file or directory"), tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS if request.param in SILENT else ():
        (folder / name).write_text(f"#!/bin/sh\necho 'first: line' >&2\necho '{said}' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    path = str(folder) if request.param not in SILENT else f"{folder}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    monkeypatch.setattr(allocation, "_patience", lambda *_: IMPATIENT)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return said


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The options with files of nodes of Slurm."""
    cluster, test = tmp_path / "cluster_conf.py", tmp_path / "test_conf.py"
    cluster.write_text("HOSTS = ['n1']\nLAUNCHER = 'slurm'\nSLURM_DETACH = True\nLINK_LIMIT = 5\n")
    results = f"FLAGPERF_LOG_PATH_HOST = {str(tmp_path / 'result')!r}\n"
    test.write_text(f"{TEST}{results}RUNTIME = 'slurm'\nPYTHON = '/usr/bin/python3'\n")
    return ["--cluster-conf", str(cluster), "--test-conf", str(test)]


def test_drain_undrain_clean_and_accept_end_at_once_with_one_sentence(
    slurm: str, files: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "result" / RUN
    folder.mkdir(parents=True)
    drain = [DrainRecord(host=host, reasons=["slow"]) for host in ("n1", "n2")]
    record = RunRecord(
        run_id=RUN, verdict=Verdict.PASS, exit_code=0, started_ms=0, finished_ms=1, command=[], runtime="slurm",
        vendor="cpu", code_digest="", git_revision=None, versions={}, hosts=[], drain=drain, cases=[],
    )  # fmt: skip
    write_record(folder / "run.json", record)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    accept = ["accept", *files, "--set", "VENDOR=nvidia", "--rungs", "health"]
    for words in (["drain", RUN, "--apply", *files], ["undrain", RUN, *files], ["clean", RUN, *files], accept):
        found = call(*words)
        assert isinstance(found.exception, SilentSlurmError) and found.exception.ends_with == EXIT_USAGE, words
        assert slurm in found.complaint and "first: line" not in found.complaint
        assert found.complaint.endswith("; nothing is lost: do it again once `scontrol ping` answers")
        assert "n1:" not in found.output, "a host is not accused"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_detached_run_that_no_job_begins_is_there_to_be_begun(slurm: str, files: list[str], tmp_path: Path) -> None:
    found = call("run", "--detach", *files)
    assert found.exit_code == EXIT_USAGE and slurm in found.stderr, found
    (folder,) = (tmp_path / "result").glob("run*")
    assert "nothing is lost: begin it by `" in found.stderr and f"resume {folder} --detach`" in found.stderr
    ended = Journal(folder).read().run_ended
    assert ended is not None and (ended.verdict, ended.exit_code) == (Verdict.SKIPPED, EXIT_USAGE)
    again = call("resume", str(folder), "--detach", *files)
    assert again.exit_code == EXIT_USAGE and slurm in again.stderr


def test_an_acceptance_is_no_run_and_has_no_detach(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "result" / "accept20261121191924").mkdir(parents=True)
    for word in ("clean", "drain"):
        for name in ("accept20261121191924", str(tmp_path / "result" / "accept20261121191924")):
            found = call(word, name, *files)
            assert found.exit_code == EXIT_USAGE and "the accept.html of an acceptance names its runs" in found.stderr
    found = call("accept", "--detach", *files)
    assert found.exit_code == EXIT_USAGE and "begin it with nohup" in found.stderr
    assert [*(tmp_path / "result").iterdir()] == [tmp_path / "result" / "accept20261121191924"]
    assert "known: " not in call("drain", "accept1", *files).stderr
