"""What all of ours costs a host while a workload runs there: both supervisors, the monitor, the launcher, the follower
of the log, and whatever the controller starts to wait and to look.

A whole run.py on this machine as its host (process runtime), with ranks that sleep; beside it so many idle processes as
a host has. The controller's own time is the head node's, the ranks' the workload's: neither counts.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.faulty_project import project
from tests.performance.rows import Row
from tests.run_benchmarks.local_run import texts
from training.benchmarks.driver.launch.process_tree import descendants

SECONDS, SMOKE_SECONDS = 60.0, 1.0  # of each measurement
SETTLE_SECONDS = 2.0
START_SECONDS = 120.0
IDLE, SMOKE_IDLE = (100, 1000), (10,)  # other processes on the host
GOAL_SUPERVISOR_PERCENT = 0.05
GOAL_PERCENT = 1.0
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
TEST_CONF = """\
VENDOR = "cpu"
RUNTIME = "process"
FLAGPERF_PATH_HOST = {deploy!r}
FLAGPERF_LOG_PATH_HOST = {logs!r}
CASES = ["SLEEP"]
SLEEP = {{"model": "faulty", "framework": "pytorch", "config": "config_CPU", "nproc": 2, "overrides": {overrides!r}}}
"""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Percent of one core, by what took it. `supervisors`: each of the two."""

    supervisors: tuple[float, ...]
    monitor: float
    launcher: float
    others: float

    @property
    def total(self) -> float:
        """Of all together."""
        return sum(self.supervisors) + self.monitor + self.launcher + self.others

    def __str__(self) -> str:
        parts = {"supervisors": sum(self.supervisors), "monitor": self.monitor, "launcher": self.launcher}
        parts["waiting and following"] = self.others
        return ", ".join(f"{name} {percent:.3f}" for name, percent in parts.items())


def measure(*, smoke: bool = False) -> list[Row]:
    """Two rows: a supervisor, and all of ours, each beside few processes and many; with `smoke` of one number alone."""
    counts, seconds = (SMOKE_IDLE, SMOKE_SECONDS) if smoke else (IDLE, SECONDS)
    few, many = counts[0], counts[-1]
    found = {}
    for count in counts:
        found[count] = _footprint(count, seconds)
        print(f"  {count} other processes: {found[count].total:.3f} % of a core ({found[count]})", flush=True)
    worst = {count: max(footprint.supervisors) for count, footprint in found.items()}
    return [
        Row(
            what=f"a task's supervisor, CPU time, {many} other processes on the host",
            measured=f"{worst[many]:.4f} % of a core",
            baseline=f"{worst[few]:.4f} % beside {few}",
            ratio=_ratio(worst[many], worst[few]),
            goal=f"under {GOAL_SUPERVISOR_PERCENT:g} % of a core beside {few} and {many}",
            met=max(worst.values()) < GOAL_SUPERVISOR_PERCENT,
        ),
        Row(
            what=f"all of ours on a host in a round, CPU time, {many} other processes there",
            measured=f"{found[many].total:.2f} % of a core ({found[many]})",
            baseline=f"{found[few].total:.2f} % beside {few}",
            ratio=_ratio(found[many].total, found[few].total),
            goal=f"under {GOAL_PERCENT:g} % of a core beside {few} and {many}",
            met=max(footprint.total for footprint in found.values()) < GOAL_PERCENT,
        ),
    ]


def _ratio(one: float, other: float) -> float:
    return one / other if other else 1.0


def _footprint(idle: int, seconds: float) -> Footprint:
    with (
        tempfile.TemporaryDirectory(prefix="clusterdyno-footprint-") as folder,
        _idle_processes(idle),
        _round(Path(folder), seconds) as controller,
    ):
        supervisors = _supervisors(Path(folder) / "logs")
        before, began = _used(controller, supervisors), time.monotonic()
        time.sleep(seconds)
        after, elapsed = _used(controller, supervisors), time.monotonic() - began
    shares = {name: (after[name] - before[name]) / elapsed / 1e7 for name in before}  # ns a second to percent
    return Footprint(
        supervisors=tuple(shares[f"supervisor {task}"] for task in supervisors),
        monitor=shares["monitor"],
        launcher=shares["workload"],
        others=shares["others"],
    )


def _used(controller: int, supervisors: dict[str, int]) -> dict[str, int]:
    """CPU nanoseconds so far, by what took them."""
    used = {"others": _ended_children(controller) + sum(map(_all_of, descendants(controller)))}
    for task, pid in supervisors.items():
        used[f"supervisor {task}"] = _own(pid)
        (main,) = _children(pid)
        ranks = _children(main) if task == "workload" else []
        without = {main, *ranks, *(below for rank in ranks for below in descendants(rank))}
        helpers = sum(_all_of(other) for other in descendants(pid) if other not in without)
        used[task] = _own(main) + helpers + (_ended_children(main) if task == "monitor" else 0)
    return used


def _children(pid: int) -> list[int]:
    below = descendants(pid)
    return [child for child in below if _stat(child)[1] == str(pid)]


def _all_of(pid: int) -> int:
    return _own(pid) + _ended_children(pid)


def _own(pid: int) -> int:
    """Nanoseconds of all threads that run (schedstat's first field); 0 for a process that has ended meanwhile."""
    total = 0
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total


def _ended_children(pid: int) -> int:
    """Nanoseconds of children that ended and were waited for, and of theirs: to a clock tick."""
    try:
        return sum(map(int, _stat(pid)[13:15])) * TICK_NS
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third on (proc(5)): state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _supervisors(logs: Path) -> dict[str, int]:
    """Pid of the supervisor by its task's kind."""
    found = {}
    for path in logs.parent.rglob("supervisor.json"):
        found[path.parent.name.rpartition(".")[2]] = int(json.loads(path.read_text(encoding="utf-8"))["pid"])
    if sorted(found) != ["monitor", "workload"]:
        raise RuntimeError(f"the round has the supervisors {found}")
    return found


@contextlib.contextmanager
def _idle_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen(["sleep", "86400"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextlib.contextmanager
def _round(folder: Path, seconds: float) -> Iterator[int]:
    """Pid of a controller whose round is at work and goes on for the measurement. Raises RuntimeError."""
    root = project(folder / "project", {})
    overrides = {"steps": 1, "after": 1, "together": False, "pause": seconds + START_SECONDS}
    places = {"deploy": str(folder / "deploy"), "logs": str(folder / "logs"), "overrides": overrides}
    (folder / "test_conf.py").write_text(TEST_CONF.format(**places), encoding="utf-8")
    (folder / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n', encoding="utf-8")
    files = ["--cluster-conf", str(folder / "cluster_conf.py"), "--test-conf", str(folder / "test_conf.py")]
    argv = [sys.executable, str(root / "run_benchmarks" / "run.py"), *files]
    output = folder / "output"
    with output.open("wb") as file, subprocess.Popen(argv, cwd=folder, stdout=file, stderr=file) as process:
        try:
            limit = time.monotonic() + START_SECONDS
            while not _at_work(folder):
                if process.poll() is not None or time.monotonic() > limit:
                    raise RuntimeError(f"the round did not begin:\n{output.read_text(encoding='utf-8')}")
                time.sleep(0.2)
            time.sleep(SETTLE_SECONDS)
            yield process.pid
        finally:
            process.terminate()


def _at_work(folder: Path) -> bool:
    logs = [text for rank in range(2) for text in texts(folder / "logs", f"rank{rank}.out.log")]
    return len(logs) == 2 and all("TRAIN_START" in log for log in logs)
