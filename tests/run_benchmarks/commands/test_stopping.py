"""`stop` tells the controller of a run to end, that one alone and once, and says where there is none."""

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from run_benchmarks.commands import stopping
from run_benchmarks.commands.status import follow_log
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.results.records import Verdict
from run_benchmarks.state.journal import Journal, JournalError, RunEnded, RunStarted
from run_benchmarks.state.run_lock import LOCK_FILE, controller_of, controlling, is_controlled

STARTED = RunStarted(run_id="run1", pid=1, plan_digest="d", cluster_conf="c", test_conf="t", rounds={"A": 2})
# A controller that takes a while to end cleanly, and writes down how it did.
CONTROLLER = """
import sys, time
from pathlib import Path
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.run_lock import controlling
folder = Path(sys.argv[1])
with controlling(folder) as lock, Interruption("clean", lock.note_stopping) as interruption:
    print("held", flush=True)
    while not interruption.is_set():
        time.sleep(0.01)
    with (folder / "run.log").open("a") as log:
        log.write("stopping the hosts\\n")
    time.sleep(1.5)
    (folder / "ended").touch()
"""


@contextmanager
def controller(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A controller at work on the run in `folder`."""
    (folder / "run.log").write_text("what was before\n")
    argv = [sys.executable, "-c", CONTROLLER, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(60)
def test_a_run_is_ended_and_waited_for(tmp_path: Path) -> None:
    out = io.StringIO()
    with controller(tmp_path) as process:
        assert stopping.stop(tmp_path, out) == 0
        assert process.wait(10) == 0 and (tmp_path / "ended").exists()
    said = out.getvalue()
    assert f"process {process.pid} is asked to end it" in said and "stopping the hosts" in said
    assert "what was before" not in said


@pytest.mark.timeout(60)
def test_what_is_logged_as_soon_as_a_run_is_asked_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy head node, where the controller may have ended before its log is looked at."""
    out = io.StringIO()
    with controller(tmp_path) as process:

        def late(folder: Path, out: TextIO, *, begin: int = 0) -> None:
            process.wait(30)
            follow_log(folder, out, begin=begin)

        monkeypatch.setattr(stopping, "follow_log", late)
        assert stopping.stop(tmp_path, out) == 0
    assert "stopping the hosts" in out.getvalue() and "what was before" not in out.getvalue()


@pytest.mark.timeout(60)
def test_who_is_stopping_already_is_waited_for_and_not_told_twice(tmp_path: Path) -> None:
    """Be it that a Ctrl-C came first, or another `stop`: a second signal would leave at once."""
    outs = [io.StringIO() for _ in range(3)]
    with controller(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        while not (found := controller_of(tmp_path)) or not found.stopping:
            pass
        threads = [threading.Thread(target=stopping.stop, args=(tmp_path, out)) for out in outs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert process.wait(10) == 0 and (tmp_path / "ended").exists()
    assert all("is ending it already (interrupted by SIGTERM)" in out.getvalue() for out in outs)


@pytest.mark.timeout(60)
def test_at_once(tmp_path: Path) -> None:
    out = io.StringIO()
    with controller(tmp_path) as process:
        assert stopping.stop(tmp_path, out, at_once=True) == 1
        assert process.wait(10) == 130 and not (tmp_path / "ended").exists()
    assert f"run.py clean {tmp_path}" in out.getvalue()


def test_a_run_without_a_controller(tmp_path: Path) -> None:
    Journal(tmp_path).append(STARTED)
    with pytest.raises(JournalError, match=f"was killed.*run.py resume {tmp_path}.*run.py clean"):
        stopping.stop(tmp_path, io.StringIO())
    Journal(tmp_path).append(RunEnded(verdict=Verdict.PASS, exit_code=0))
    with pytest.raises(JournalError, match="it has ended: pass"):
        stopping.stop(tmp_path, io.StringIO())


@pytest.mark.parametrize("change", [{"host": "another"}, {"boot_id": "of-another-machine-of-the-same-name"}])
def test_a_controller_on_another_head_node(tmp_path: Path, change: dict[str, str]) -> None:
    """With a file system where its lock is seen, and with one where it is not."""
    with controlling(tmp_path):
        holder = {**json.loads((tmp_path / LOCK_FILE).read_text()), **change}
        (tmp_path / LOCK_FILE).write_text(json.dumps(holder))
        with pytest.raises(JournalError, match=f"on the head node {holder['host']}: stop it there"):
            stopping.stop(tmp_path, io.StringIO())
    (tmp_path / LOCK_FILE).write_text(json.dumps(holder))
    with pytest.raises(JournalError, match=f"begun on the head node {holder['host']} .*look there"):
        stopping.stop(tmp_path, io.StringIO())


@pytest.mark.timeout(60)
def test_a_stranger_with_the_controller_s_pid_is_never_signalled(tmp_path: Path) -> None:
    """The lock is held by another, which does not say so; the process that it names is younger than its note."""
    (tmp_path / "run.log").touch()
    with subprocess.Popen(["sleep", "600"]) as bystander, controlling(tmp_path):
        holder = {**json.loads((tmp_path / LOCK_FILE).read_text()), "pid": bystander.pid}
        (tmp_path / LOCK_FILE).write_text(json.dumps(holder))
        thread = threading.Thread(target=stopping.stop, args=(tmp_path, io.StringIO()), daemon=True)
        thread.start()
        thread.join(1.0)
        assert thread.is_alive() and bystander.poll() is None
        bystander.kill()
    thread.join(10)
    assert not thread.is_alive()


def test_a_run_whose_lock_names_no_process_is_not_stopped(tmp_path: Path) -> None:
    with controlling(tmp_path):
        (tmp_path / LOCK_FILE).write_text("")
        with pytest.raises(JournalError, match="held by an unknown process"):
            stopping.stop(tmp_path, io.StringIO())


def test_a_clean_end_takes_the_name_back(tmp_path: Path) -> None:
    with controlling(tmp_path):
        assert is_controlled(tmp_path) and controller_of(tmp_path) is not None
    assert not is_controlled(tmp_path) and controller_of(tmp_path) is None
