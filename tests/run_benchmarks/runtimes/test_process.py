"""Supervised process trees on this machine: started, awaited, stopped whole, removed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import CommandError, TaskError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.runtimes import process as process_runtime
from run_benchmarks.runtimes.base import MAX_OUTPUT_BYTES, Bound, RunningTask
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.settings.container_options import ContainerOptions
from training.benchmarks.driver.launch import supervise
from training.benchmarks.driver.launch.process_tree import start_ticks

GRACE = 0.5
# Ignores SIGTERM, as do two children: one in its group, one that left session, group and parent.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)  # " + sys.argv[1]
subprocess.Popen([sys.executable, "-c", sleeper])
child = os.fork()
if child == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", sleeper])
    os._exit(0)
os.waitpid(child, 0)
print("ready", flush=True)
time.sleep(600)
"""


class Tasks:
    """Makes tasks of one node, and finishes what a test left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "node1.workload"
        self.word = f"clusterdyno-test-{os.getpid()}-{time.monotonic_ns()}"
        self._made: list[RunningTask] = []

    def make(self, *argv: str, environment: dict[str, str] | None = None, kind: str = "workload") -> RunningTask:
        # The supervisor runs under the interpreter of the command, as python -m ... does.
        labels = {"org.clusterdyno.task": kind}
        task = Task(name=kind, argv=(sys.executable, *argv), environment=environment or {}, labels=labels)
        node = NodePlan(
            host="localhost",
            node_rank=0,
            ranks=(0,),
            image=None,
            workdir=str(ROOT),
            log_dir_host=str(self.folder / "node1"),
            case_file_host=str(self.folder / "case.json"),
            mounts=(),
            options=ContainerOptions(),
            workload=task,
            monitor=task,
        )
        bound = Bound(master_port=29555, facts={"docker_version": "29"})
        self._made.append(ProcessRuntime().create(LocalHost("localhost"), node, task, bound))
        return self._made[-1]

    def run(self, code: str, *arguments: str, environment: dict[str, str] | None = None) -> RunningTask:
        task = self.make("-c", code, *arguments, environment=environment)
        task.start()
        return task

    def processes(self) -> list[psutil.Process]:
        """What runs of this test's own commands."""
        return [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if any(self.word in part for part in process.info["cmdline"] or ())
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ]

    def wait_for(self, count: int) -> None:
        limit = time.monotonic() + 10
        while len(found := self.processes()) != count and time.monotonic() < limit:
            time.sleep(0.02)
        assert len(found) == count

    def supervisor(self) -> psutil.Process:
        return psutil.Process(json.loads((self.state / "supervisor.json").read_text())["pid"])

    def finish(self) -> None:
        for task in self._made:
            task.finish(0)


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    tasks = Tasks(tmp_path)
    yield tasks
    tasks.finish()
    assert tasks.processes() == []


def test_a_task_runs_to_its_end(tasks: Tasks) -> None:
    code = "import os, sys; print(os.environ['A'], os.getcwd()); print('err', file=sys.stderr); print(*sys.argv[1:])"
    task = tasks.run(code, "{master_port}", "a b", environment={"A": "x y"})
    assert task.wait(20) == 0
    assert task.wait(20) == 0
    output = task.finish(GRACE)
    assert sorted(output.splitlines()) == sorted([f"x y {ROOT}", "err", "29555 a b"])
    assert list(tasks.folder.iterdir()) == []


def test_of_a_flood_the_beginning_and_the_end_are_kept(tasks: Tasks) -> None:
    task = tasks.run("print('begin' + 'x' * 3_000_000 + 'end')")
    assert task.wait(20) == 0
    output = task.finish(GRACE)
    assert output.startswith("beginxxx") and output.endswith("xxxend\n")
    assert len(output) < MAX_OUTPUT_BYTES + 100
    assert f"[... {3_000_009 - MAX_OUTPUT_BYTES} bytes are left out here ...]" in output


def test_modules_in_the_login_s_folder_are_not_run(
    tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home with a json.py and a training of its own, in which a login begins."""
    (tmp_path / "home" / "training").mkdir(parents=True)
    for name in ("json.py", "training/__init__.py"):
        (tmp_path / "home" / name).write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path / "home")
    task = tasks.run("import json, training; print(training.__file__)")
    assert task.wait(30) == 0
    assert task.finish(GRACE).strip() == str(ROOT / "training/__init__.py")


def test_facts_reach_the_task(tasks: Tasks) -> None:
    task = tasks.run("import os; print(os.environ['CLUSTERDYNO_SYS_DOCKER_VERSION'])")
    assert task.wait(20) == 0
    assert task.finish(GRACE) == "29\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("import os; os.abort()", 134)],
)
def test_exit_codes(tasks: Tasks, code: str, expected: int) -> None:
    assert tasks.run(code).wait(20) == expected


def test_a_running_task_is_not_waited_for_longer_than_asked(tasks: Tasks) -> None:
    task = tasks.run("import time; time.sleep(600)", tasks.word)
    assert task.wait(0.3) is None
    tasks.wait_for(1)


def test_what_cannot_be_started_ends_with_127(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder goes once the supervisor is loaded: it says so as a shell would."""
    monkeypatch.setattr(process_runtime, "IN_FOLDER", ("sh", "-c", 'shift && exec "$@"', "sh"))
    monkeypatch.chdir(ROOT)
    task = tasks.make("-c", "pass")
    node = task._node.model_copy(update={"workdir": str(tasks.folder / "gone")})  # type: ignore[attr-defined]
    task._node = node  # type: ignore[attr-defined]
    task.start()
    assert task.wait(20) == 127
    assert "cannot be started" in task.finish(GRACE)


def test_an_interpreter_that_is_none_is_an_error_of_the_task(tasks: Tasks) -> None:
    task = tasks.make("-c", "pass")
    task._task = task._task.model_copy(update={"argv": ("/no/such/python",)})  # type: ignore[attr-defined]
    with pytest.raises(TaskError, match=r"localhost: task workload: .*/no/such/python"):
        task.start()


def test_several_starts_are_one(tasks: Tasks) -> None:
    """Where the answer to a start is lost on the way, it is asked for again, maybe before the first has begun."""
    task = tasks.make("-c", "import time; print('up', flush=True); time.sleep(600)", tasks.word)
    for_each(dict.fromkeys("abcd", task), lambda each: each.start()).raise_first()
    task.start()
    wait_for_output(tasks, "up")
    assert (tasks.state / "output.log").read_text() == "up\n"
    tasks.wait_for(1)


def test_a_start_that_never_ended_is_told(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tasks.folder / "impatient.py"
    script.write_text(
        "import sys\nfrom training.benchmarks.driver.launch import supervise\nsupervise.START_SECONDS = 0.2\n"
        "sys.argv[0] = 'supervise'\nsupervise.main()\n"
    )
    monkeypatch.setattr(process_runtime, "SUPERVISE", (str(script),))
    tasks.state.mkdir()
    task = tasks.make("-c", "pass")
    with pytest.raises(TaskError, match="is there, and no supervisor is"):
        task.start()
    tasks.state.rmdir()


def test_stopping_is_gentle_first(tasks: Tasks) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(5)); "
    code += "print('up', flush=True); time.sleep(600)"
    task = tasks.run(code, tasks.word)
    wait_for_output(tasks, "up")
    task.stop(20)
    assert task.wait(5) == 5
    task.stop(20)


def wait_for_output(tasks: Tasks, word: str) -> None:
    limit = time.monotonic() + 10
    while word not in (tasks.state / "output.log").read_text() and time.monotonic() < limit:
        time.sleep(0.02)
    assert word in (tasks.state / "output.log").read_text()


def test_stopping_takes_the_whole_tree(tasks: Tasks) -> None:
    """One that ignores SIGTERM, with a child that left its session and its parent."""
    task = tasks.run(STUBBORN, tasks.word)
    wait_for_output(tasks, "ready")
    tasks.wait_for(3)
    task.stop(GRACE)
    assert tasks.processes() == []
    assert task.wait(5) == 137


def test_finishing_stops_a_running_task_and_removes_its_state(tasks: Tasks) -> None:
    task = tasks.run(STUBBORN, tasks.word)
    wait_for_output(tasks, "ready")
    tasks.wait_for(3)
    assert task.finish(GRACE) == "ready\n"
    assert tasks.processes() == []
    assert list(tasks.folder.iterdir()) == []
    assert task.finish(GRACE) == ""


def test_what_a_task_leaves_behind_ends_with_it(tasks: Tasks) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); print(sys.argv[1])"
    task = tasks.run(code, tasks.word)
    assert task.wait(20) == 0
    assert [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "600"]] == []


def test_a_task_outlives_who_started_it(tasks: Tasks) -> None:
    tasks.run("import time; time.sleep(600)", tasks.word)
    supervisor = tasks.supervisor()
    assert os.getsid(supervisor.pid) != os.getsid(0)
    assert supervisor.ppid() != os.getpid()


def test_a_killed_supervisor_is_an_error_and_no_exit_code(tasks: Tasks) -> None:
    task = tasks.run("import time; time.sleep(600)", tasks.word)
    tasks.wait_for(1)
    tasks.supervisor().kill()
    with pytest.raises(TaskError, match="vanished without an exit code"):
        task.wait(20)
    for process in tasks.processes():
        process.kill()


@pytest.mark.parametrize(
    "answer",
    ["[" * 100_000, '{"exit_code": []}', '{"exit_code": ' + "9" * 5000 + "}", '{"exit_code": 1e999}', "[]", "{}"],
)
def test_an_exit_code_that_is_none_is_an_error_of_the_task(tasks: Tasks, answer: str) -> None:
    task = tasks.run("pass")
    assert task.wait(20) == 0
    (tasks.state / "exit.json").write_text(answer)
    with pytest.raises(TaskError, match="without an exit code"):
        task.wait(20)


def test_a_supervisor_that_stays_a_zombie_is_not_waited_for(tasks: Tasks) -> None:
    """As in a container whose first process reaps nobody."""
    task = tasks.make("-c", "pass")
    tasks.state.mkdir()
    with subprocess.Popen(["true"]) as process:
        (tasks.state / "supervisor.json").write_text(json.dumps({"pid": process.pid, "start_ticks": 0}))
        (tasks.state / "output.log").touch()
        with pytest.raises(TaskError, match="vanished without an exit code"):
            task.wait(20)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


def test_a_task_that_cannot_be_stopped_is_not_forgotten(tasks: Tasks) -> None:
    task = tasks.run("import time; time.sleep(600)", tasks.word)
    sound = task._task  # type: ignore[attr-defined]
    task._task = sound.model_copy(update={"argv": ("/no/such/python",)})  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match="no/such/python"):
        task.finish(GRACE)
    task._task = sound  # type: ignore[attr-defined]
    assert task.finish(GRACE) == ""
    assert tasks.processes() == []


def test_two_tasks_of_a_node_are_apart(tasks: Tasks) -> None:
    workload = tasks.run("import time; time.sleep(600)", tasks.word)
    monitor = tasks.make("-c", "print('monitor')", kind="monitor")
    monitor.start()
    assert monitor.wait(20) == 0
    assert monitor.finish(GRACE) == "monitor\n"
    assert workload.wait(0.2) is None


def test_a_zombie_of_a_supervisor_has_ended(tmp_path: Path) -> None:
    """Where nobody reaps it, as in a container without an init."""
    with subprocess.Popen(["true"]) as process:
        limit = time.monotonic() + 10
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < limit:
            time.sleep(0.02)
        record = {"pid": process.pid, "start_ticks": start_ticks(process.pid)}
        (tmp_path / "supervisor.json").write_text(json.dumps(record))
        assert supervise.find(tmp_path) is None
    with subprocess.Popen(["sleep", "600"]) as process:
        record = {"pid": process.pid, "start_ticks": start_ticks(process.pid)}
        (tmp_path / "supervisor.json").write_text(json.dumps(record))
        assert supervise.find(tmp_path) is not None
        supervise.stop(tmp_path, 5)
        assert process.wait(5) == -signal.SIGTERM


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_stranger_with_the_supervisor_s_pid_is_never_signalled(
    tasks: Tasks, bystander: subprocess.Popen[bytes]
) -> None:
    task = tasks.run("pass")
    assert task.wait(20) == 0
    record = json.loads((tasks.state / "supervisor.json").read_text())
    (tasks.state / "supervisor.json").write_text(json.dumps({**record, "pid": bystander.pid}))
    (tasks.state / "exit.json").unlink()
    task.stop(GRACE)
    task.finish(GRACE)
    assert bystander.poll() is None


def test_the_supervisor_is_found_also_after_the_clock_was_set(tasks: Tasks) -> None:
    """psutil adds the boot time to a start time, and the kernel moves the boot time with the clock."""
    task = tasks.run("import time; time.sleep(600)", tasks.word)
    tasks.wait_for(1)
    shifted = (
        "import psutil, sys; real = psutil._pslinux.boot_time; psutil._pslinux.boot_time = lambda: real() + 3600; "
        "from training.benchmarks.driver.launch.supervise import main; sys.argv[0] = 'supervise'; main()"
    )
    command = [sys.executable, "-c", shifted, "stop", "--grace", "0.5", "--state", str(tasks.state)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=200)
    assert task.wait(5) == 128 + signal.SIGTERM


def test_what_ended_a_task_from_outside_is_told(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped, then killed by the kernel (whose log is written here, as it words it: mm/oom_kill.c)."""
    task = tasks.run("import time; time.sleep(600)", tasks.word)
    tasks.wait_for(1)
    (command,) = tasks.processes()
    assert task.trouble() is None
    command.suspend()
    found = task.trouble()
    assert found is not None and found.words == f"its launcher (process {command.pid}) is stopped (SIGSTOP)"
    log = f"[  277.043271] Out of memory: Killed process {command.pid} (python3) total-vm:8kB, anon-rss:4kB"
    (tasks.folder / "dmesg").write_text(f"#!/bin/sh\necho '{log}'\n")
    (tasks.folder / "dmesg").chmod(0o755)
    command.kill()
    assert task.wait(20) == 128 + signal.SIGKILL
    assert task.trouble() is None
    monkeypatch.setenv("PATH", f"{tasks.folder}:{os.environ['PATH']}")
    found = task.trouble()
    assert found is not None and found.words.endswith("for lack of memory") and not found.kind.is_infrastructure


def test_what_outlives_its_supervisor_is_named_and_ended(tasks: Tasks) -> None:
    task = tasks.run(STUBBORN, tasks.word)
    tasks.wait_for(3)
    supervisor = tasks.supervisor()
    supervisor.kill()
    with pytest.raises(TaskError, match="vanished without an exit code"):
        task.wait(20)
    found = task.trouble()
    assert found is not None and found.words == f"its supervisor (process {supervisor.pid}) was killed"
    assert f"{supervise.SAYS}ended 3 processes that outlived their supervisor" in task.output(GRACE)
