"""What a supervised task costs its host while it runs: nothing but what its own events are worth."""

import threading
import time
from pathlib import Path

import psutil
import pytest

from run_benchmarks.runtimes.base import RunningTask
from tests.run_benchmarks.runtimes.test_process import GRACE, STUBBORN, Tasks, wait_for_output
from tests.run_benchmarks.runtimes.test_process import tasks as tasks
from tests.settling import settled

QUIET_SECONDS = 1.0
# Writes down every path below /proc that is opened or listed by who starts with it.
AUDITED = """
import os, runpy, sys
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        os.write(log, f"{os.getpid()} {arguments[0]}\\n".encode())
sys.addaudithook(note)
runpy.run_module("training.benchmarks.driver.launch.supervise", run_name="__main__", alter_sys=True)
"""


def wake_ups(process: psutil.Process) -> int:
    """How often the process has gone to sleep of its own will."""
    return int(process.num_ctx_switches().voluntary)


def waiting(task: RunningTask) -> threading.Thread:
    thread = threading.Thread(target=lambda: task.wait(60), daemon=True)
    thread.start()
    return thread


def shell_of(tasks: Tasks) -> psutil.Process:
    """The shell that waits for the task."""
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        for process in psutil.Process().children():
            if process.name() == "sh" and str(tasks.state) in process.cmdline():
                return process
        time.sleep(0.02)
    raise AssertionError("nobody waits")


def test_supervisor_and_waiting_shell_sleep_until_something_happens(tasks: Tasks) -> None:
    task = tasks.run("import time; print('up', flush=True); time.sleep(600)", tasks.word)
    wait_for_output(tasks, "up")
    thread, supervisor, shell = waiting(task), tasks.supervisor(), shell_of(tasks)
    before = settled(lambda: (wake_ups(supervisor), wake_ups(shell)))
    time.sleep(QUIET_SECONDS)
    assert (wake_ups(supervisor), wake_ups(shell)) == before and shell.children() == []
    task.stop(GRACE)
    thread.join(10)
    assert not thread.is_alive() and not shell.is_running()


def test_supervising_and_killing_a_tree_looks_at_no_other_process(
    tasks: Tasks, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, script = tmp_path_factory.mktemp("audit") / "log", tmp_path_factory.mktemp("script") / "audited.py"
    script.write_text(AUDITED)
    monkeypatch.setattr("run_benchmarks.runtimes.process.SUPERVISE", (str(script), str(log)))
    task = tasks.run(STUBBORN, tasks.word)
    wait_for_output(tasks, "ready")
    tasks.wait_for(3)
    ours = {str(process.pid) for process in [*tasks.processes(), tasks.supervisor()]}
    task.stop(GRACE)
    assert tasks.processes() == [] and task.wait(5) == 137
    seen = [line.split() for line in log.read_text().splitlines()]
    looked_at = {Path(path).parts[2] for who, path in seen if len(Path(path).parts) > 2}
    starters = {who for who, _ in seen}
    assert looked_at - {"self", "thread-self", "sys"} <= ours | starters
    assert ("/proc",) not in {tuple(line[1:]) for line in seen}


def test_a_file_system_without_fifos_is_waited_on_all_the_same(tasks: Tasks) -> None:
    task = tasks.run("import time; time.sleep(1); raise SystemExit(3)", tasks.word)
    (tasks.state / "alive").unlink()
    assert task.wait(20) == 3


def test_several_wait_for_one_task(tasks: Tasks) -> None:
    task = tasks.run("import time; time.sleep(600)", tasks.word)
    threads = [waiting(task) for _ in range(3)]
    assert task.wait(0.3) is None
    task.stop(GRACE)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_orphans_of_a_running_task_are_reaped(tasks: Tasks) -> None:
    """Whose parent ends while the command goes on becomes the supervisor's child."""
    code = (
        "import os, time\nif os.fork() == 0:\n os.fork() or (time.sleep(0.3), os._exit(0))\n os._exit(0)\nos.wait(); "
    )
    task = tasks.run(code + "print('up', flush=True); time.sleep(600)", tasks.word)
    wait_for_output(tasks, "up")
    limit = time.monotonic() + 10
    while len(tasks.supervisor().children()) != 1 and time.monotonic() < limit:
        time.sleep(0.02)
    assert len(tasks.supervisor().children()) == 1
    assert task.wait(0.2) is None
