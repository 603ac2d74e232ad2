"""What the controller adds to a payload: run.py, whole, against the bare floor of the payload on the same two hosts.

The floor is what a person could type at best: for both hosts at once `ssh host docker run ... torchrun`, with the image
and the code already there, nothing checked, watched or collected. Floor and run.py alternate, medians are compared. The
payload is our own all_reduce, a fixed number of iterations that takes about five seconds.
"""

import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.plan.plan import NodePlan, Plan
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.settings.settings import load_settings
from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import Answer, Controller
from tests.performance.peak import run_measured
from tests.performance.rows import Row
from training.benchmarks.driver.launch import launcher as launch

CASE = "PAYLOAD"
GOAL_SECONDS = 3.0
GOAL_MEMORY_MB = 150.0


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured; `probe_iterations` are those of the first run, which tells how many fill the payload."""

    payload_seconds: float
    probe_iterations: int
    repeats: int
    rounds: int


FULL = Effort(payload_seconds=5.0, probe_iterations=500, repeats=3, rounds=4)
SMOKE = Effort(payload_seconds=0.1, probe_iterations=10, repeats=1, rounds=2)


def measure(*, smoke: bool = False) -> list[Row]:
    """Four rows: one round, a further round, the controller's memory, the monitor's share of a core."""
    with TestBed(2, images.CACHE / "performance" / "bed", images=True) as bed:
        return measure_on(bed, smoke=smoke)


def measure_on(bed: TestBed, *, smoke: bool) -> list[Row]:
    """The rows of `measure`, on a bed of two hosts with engines and images."""
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Controller(Path(folder), bed), bed, SMOKE if smoke else FULL)


def _measure(controller: Controller, bed: TestBed, effort: Effort) -> list[Row]:
    iterations = _calibrate(controller, effort)
    floors, singles, memory, monitors = [], [], [], []
    for number in range(1, effort.repeats + 1):
        _configure(controller, iterations, rounds=1)
        plan = _plan(controller)
        _write_case_files(plan, bed)
        floors.append(_timed(lambda plan=plan: _floor(plan, bed)))  # type: ignore[misc]
        seconds, peak, answer = _run(controller)
        singles.append(seconds)
        memory.append(peak)
        nodes = answer.round_record(CASE)["nodes"]
        monitors += [node["monitor"]["monitor_cpu_percent"] for node in nodes]
        print(f"  {number}/{effort.repeats}: floor {floors[-1]:.1f} s, run.py {singles[-1]:.1f} s", flush=True)
    _configure(controller, iterations, rounds=effort.rounds)
    several, peak, _ = _run(controller)
    memory.append(peak)
    floor, single = statistics.median(floors), statistics.median(singles)
    further = (several - single) / (effort.rounds - 1)
    bare = _bare_interpreter()
    return [
        _row("one round on two hosts, whole run.py", single, floor),
        _row(f"each further round (of {effort.rounds})", further, floor),
        Row(
            what="controller, peak memory",
            measured=f"{max(memory):.0f} MB",
            baseline=f"{bare:.0f} MB, Python with its libraries imported",
            ratio=max(memory) / bare,
            goal=f"under {GOAL_MEMORY_MB:g} MB",
            met=max(memory) < GOAL_MEMORY_MB,
        ),
        Row(
            what="monitor during the rounds, CPU time",
            measured=f"{max(monitors):.2f} % of a core",
            baseline="1 % of a core",
            ratio=max(monitors),
            goal="under 1 %",
            met=max(monitors) < 1.0,
        ),
    ]


def _row(what: str, seconds: float, floor: float) -> Row:
    return Row(
        what=what,
        measured=f"{seconds:.1f} s",
        baseline=f"{floor:.1f} s: ssh, docker run, torchrun",
        ratio=seconds / floor,
        goal=f"at most {GOAL_SECONDS:g} s over the floor (here {seconds - floor:+.1f} s)",
        met=seconds - floor <= GOAL_SECONDS,
    )


def _configure(controller: Controller, iterations: int, rounds: int) -> None:
    overrides = {"sizes": "1M", "iterations": iterations, "check": False}
    controller.configure_test({CASE: {"nproc": 1, "repeat": rounds, "overrides": overrides}})


def _calibrate(controller: Controller, effort: Effort) -> int:
    """Iterations that fill the payload; this first run builds and distributes the image, too."""
    _configure(controller, effort.probe_iterations, rounds=1)
    _, _, answer = _run(controller)
    mean_us = float(answer.round_record(CASE)["steps"][0]["time_us"]["mean"])
    return max(1, round(effort.payload_seconds / (mean_us / 1e6)))


def _run(controller: Controller) -> tuple[float, float, Answer]:
    """Wall seconds, peak memory in MB and the outcome of one run.py."""
    seconds, megabytes, exit_code, output = run_measured(controller.argv(), ROOT)
    answer = Answer(exit_code, output, controller.newest_run())
    if answer.exit_code != 0:
        raise RuntimeError(f"run.py ended with {answer.exit_code}:\n{answer.output}")
    return seconds, megabytes, answer


def _plan(controller: Controller) -> Plan:
    return prepare(load_settings(controller.cluster_conf, controller.test_conf), new_run_id()).plan


def _timed(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def _floor(plan: Plan, bed: TestBed) -> None:
    """Both hosts at once, the barest way; raises where a host's command fails."""
    nodes = plan.cases[0].rounds[0].nodes
    processes = [
        subprocess.Popen(bed.ssh_argv(host, _docker_run(node, plan)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for host, node in zip(bed.hosts, nodes, strict=True)
    ]
    outputs = [process.communicate()[0].decode() for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("the floor failed:\n" + "\n".join(outputs))


def _write_case_files(plan: Plan, bed: TestBed) -> None:
    """Write the case.json that the ranks read on each host: a run removes its own, and the floor's is not timed."""
    case = plan.cases[0]
    for host, node in zip(bed.hosts, case.rounds[0].nodes, strict=True):
        script = 'mkdir -p "${1%/*}" && printf %s "$2" >"$1"'
        host.exec(["sh", "-c", script, "sh", node.case_file_host, case.case_file.text])


def _docker_run(node: NodePlan, plan: Plan) -> str:
    argv = list(node.workload.argv)
    python, split = argv[0], argv.index("--")
    options = launch.parse(argv[3:]).torchrun_options
    torchrun = dict(zip(options[::2], options[1::2], strict=True))
    torchrun["--master_port"] = str(plan.cases[0].rounds[0].port_from + 100)
    words = ["docker", "run", "--rm", "--network", "host", "--init"]
    words += ["-w", node.workdir]
    for mount in node.mounts:
        if mount.read_only:  # the code and the case.json
            words += ["-v", f"{mount.source}:{mount.target}:ro"]
    for name, value in {**node.workload.environment, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "2"}.items():
        words += ["-e", f"{name}={value}"]
    words += [node.image or "", python, "-m", "torch.distributed.run"]
    words += [word for pair in torchrun.items() for word in pair]
    return shlex.join([*words, *argv[split:]])


def _bare_interpreter() -> float:
    """Peak memory in MB of a Python that only imports what the controller imports."""
    return run_measured([sys.executable, "-c", "import run_benchmarks.session.session"], ROOT)[1]
