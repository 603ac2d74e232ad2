"""The controller's own work on many hosts: 64 real sshd against clush and pssh on the same hosts, and 1,000 simulated.

Both sides run the very same command lines: the check's fact script, and the start of a supervised process. The hosts
are network namespaces of this machine, so what sshd and the commands cost is paid here, too, by both sides alike.
"""

import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.transfer import pull, push
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.facts import Questions
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import LABEL, NodePlan, Task
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.process import SUPERVISE, ProcessRuntime
from run_benchmarks.session.preparation import PreparedRun, make_hosts, prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.settings.settings import load_settings
from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.performance.peak import own_peak
from tests.performance.rows import Row
from tests.performance.simulated_host import LATENCY_SECONDS, SimulatedHost

GOAL_RATIO = 0.5
GOAL_SIMULATED_SECONDS = 10.0
GOAL_FLAT = 1.5
SETTLE_SECONDS = 2.0
MEGABYTE = 1e6
CASE = "SCALE"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How many hosts over ssh, how many of them in the small fleet, how many simulated ones, how often."""

    many: int
    few: int
    simulated: int
    repeats: int


FULL = Effort(many=64, few=8, simulated=1000, repeats=3)
SMOKE = Effort(many=2, few=1, simulated=10, repeats=1)


def measure(*, smoke: bool = False) -> list[Row]:
    """Rows: check, start, the whole way, cost per host, simulated hosts, what is left of threads and descriptors."""
    effort = SMOKE if smoke else FULL
    with TestBed(effort.many, images.CACHE / "performance" / "scale", engine=False) as bed:
        return measure_on(bed, smoke=smoke)


def measure_on(bed: TestBed, *, smoke: bool) -> list[Row]:
    """The rows of `measure`, on a bed of as many hosts."""
    effort = SMOKE if smoke else FULL
    with tempfile.TemporaryDirectory() as f:
        folder = Path(f)
        few = _prepared(bed, effort.few, folder / "few")
        many = _prepared(bed, effort.many, folder / "many")
        _whole(few, folder, "warm-up")
        time.sleep(SETTLE_SECONDS)
        baseline = _threads_and_descriptors()
        clush = _clush(bed, folder / "ssh_config")
        check = [(_timed(lambda: _check(many)), clush(_fact_command(many), "")) for _ in range(effort.repeats)]
        start = [_start_both(many, clush, number) for number in range(effort.repeats)]
        pssh = _pssh(bed, folder / "ssh_config", _fact_command(many))
        whole_few = min(_timed(lambda n=n: _whole(few, folder, f"few{n}")) for n in range(effort.repeats))  # type: ignore[misc]
        whole_many = min(_timed(lambda n=n: _whole(many, folder, f"many{n}")) for n in range(effort.repeats))  # type: ignore[misc]
        time.sleep(SETTLE_SECONDS)
        left = _threads_and_descriptors()
        peak = own_peak() / MEGABYTE
    return [
        _against(f"check {effort.many}", check, pssh),
        _against(f"start {effort.many}", start, None),
        _flat(whole_few, whole_many, effort),
        _simulated(effort.simulated),
        Row(
            what=f"left of {effort.many} connections: threads, descriptors; peak memory",
            measured=f"{left[0]}, {left[1]}; {peak:.0f} MB",
            baseline=f"{baseline[0]}, {baseline[1]} before",
            ratio=max(left[0] / baseline[0], left[1] / baseline[1]),
            goal="none left",
            met=left[0] <= baseline[0] and left[1] <= baseline[1],
        ),
    ]


def _against(what: str, pairs: Sequence[tuple[float, float]], pssh: float | None) -> Row:
    ours, theirs = (sorted(each)[len(pairs) // 2] for each in zip(*pairs, strict=True))
    also = "" if pssh is None else f"; pssh {pssh:.1f} s"
    return Row(
        what=f"{what} hosts over ssh",
        measured=f"{ours:.2f} s",
        baseline=f"{theirs:.2f} s: clush, the same command{also}",
        ratio=ours / theirs,
        goal=f"at most {GOAL_RATIO:g} of clush",
        met=ours <= GOAL_RATIO * theirs,
    )


def _flat(few: float, many: float, effort: Effort) -> Row:
    ratio = (many / effort.many) / (few / effort.few)
    return Row(
        what=f"connect, check, push, start, wait, collect, clean: {effort.many} hosts",
        measured=f"{many:.2f} s, {many / effort.many * 1e3:.0f} ms a host",
        baseline=f"{few:.2f} s, {few / effort.few * 1e3:.0f} ms a host with {effort.few} hosts",
        ratio=ratio,
        goal=f"cost per host flat from {effort.few} to {effort.many} hosts (at most {GOAL_FLAT:g} times)",
        met=ratio <= GOAL_FLAT,
    )


def _simulated(count: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        names = [f"sim{number}" for number in range(count)]
        prepared = _settings(Path(folder), names, "SSH_USER = 'root'\n")
        answer = LocalHost("localhost").run(_fact_argv(prepared, []), deadline=20).stdout
        answer += "".join(f"resolves\t{name}\n" for name in names) + "own\teth0\n"
        hosts: dict[str, Host] = {name: SimulatedHost(name, answer) for name in names}
        reports: dict[str, HostReport] = {}
        before = own_peak()
        seconds = _timed(lambda: reports.update(_check_on(hosts, prepared)))
        grown = (own_peak() - before) / MEGABYTE
    if len(reports) != count or any(report.facts is None for report in reports.values()):
        raise RuntimeError("the simulated hosts were not all checked")
    floor = count * 2 * LATENCY_SECONDS
    return Row(
        what=f"check {count} simulated hosts of {LATENCY_SECONDS * 1e3:g} ms latency",
        measured=f"{seconds:.1f} s, {grown:+.0f} MB",
        baseline=f"{floor:.0f} s: two round trips to each, one after the other",
        ratio=seconds / floor,
        goal=f"under {GOAL_SIMULATED_SECONDS:g} s",
        met=seconds < GOAL_SIMULATED_SECONDS,
    )


def _settings(folder: Path, hosts: Sequence[str], access: str) -> PreparedRun:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cluster_conf.py").write_text(f"HOSTS = {list(hosts)!r}\n{access}")
    case = {"model": "network", "framework": "pytorch", "config": "config_CPUx2x2", "nnodes": len(hosts), "nproc": 1}
    values = {"VENDOR": "cpu", "RUNTIME": "process", "PYTHON": sys.executable, "CASES": [CASE], CASE: case}
    values["FLAGPERF_PATH_HOST"] = str(folder / "deploy")
    (folder / "test_conf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))
    return prepare(load_settings(folder / "cluster_conf.py", folder / "test_conf.py"), new_run_id())


def _prepared(bed: TestBed, count: int, folder: Path) -> PreparedRun:
    access = f"SSH_USER = 'root'\nSSH_KEY = {str(bed.key_file)!r}\nKNOWN_HOSTS = {str(bed.known_hosts)!r}\n"
    return _settings(folder, [host.address for host in bed.hosts[:count]], access)


def _check_on(hosts: Mapping[str, Host], prepared: PreparedRun) -> dict[str, HostReport]:
    return check_hosts(hosts, prepared.settings, prepared.plan, prepared.resolved.vendor, prepared.runtime())


def _check(prepared: PreparedRun) -> None:
    """Connect anew to every host and check it."""
    hosts = make_hosts(prepared.settings.cluster)
    try:
        for report in _check_on(hosts, prepared).values():
            if report.facts is None:
                raise RuntimeError(f"not checked: {report.findings}")
    finally:
        for_each(hosts, lambda host: host.close())


def _fact_argv(prepared: PreparedRun, names: Sequence[str]) -> list[str]:
    """What the check runs on a host of this plan."""
    plan = prepared.plan
    return Questions(
        deploy=str(Path(plan.code_dir_host).parent),
        log_root=str(Path(plan.log_root_host).parent),
        code_dir=plan.code_dir_host,
        python=sys.executable,
        packages=["numpy", "psutil", "pydantic", "torch"],
        master=plan.hosts[0],
        names=names,
        device_globs=(),
        data=(),
    ).argv()


def _fact_command(prepared: PreparedRun) -> str:
    return shlex.join(_fact_argv(prepared, prepared.plan.hosts))


def _start_both(prepared: PreparedRun, clush: Callable[[str, str], float], number: int) -> tuple[float, float]:
    """Start a process on every host, with us (connections open, as in a run) and with clush."""
    hosts = make_hosts(prepared.settings.cluster)
    try:
        for_each(hosts, lambda host: host.connect()).raise_first()
        for_each(hosts, lambda host: _push(host, prepared)).raise_first()
        nodes = _nodes(prepared, f"start{number}")
        make = ProcessRuntime().create
        tasks = {name: make(hosts[name], node, node.workload, Bound(master_port=1)) for name, node in nodes.items()}
        for_each(
            nodes, lambda node: hosts[node.host].run(["mkdir", "-p", node.log_dir_host], deadline=30)
        ).raise_first()
        ours = _timed(lambda: for_each(tasks, lambda task: task.start()).raise_first())
        first = next(iter(nodes.values()))
        words = ["env", f"PYTHONPATH={first.workdir}", sys.executable, *SUPERVISE, "start", "--state"]
        request = json.dumps({"argv": [*first.workload.argv[:3], ""], "environment": {}, "cwd": "/"})
        theirs = clush(shlex.join([*words, f"/root/clush{number}"]), request)
        for_each(tasks, lambda task: task.finish(1.0)).raise_first()
    finally:
        for_each(hosts, lambda host: host.close())
    return ours, theirs


def _push(host: Host, prepared: PreparedRun) -> None:
    push(host, prepared.code.open(), prepared.plan.code_dir_host, deadline=60)


def _nodes(prepared: PreparedRun, name: str) -> dict[str, NodePlan]:
    """Nodes whose workload writes one file, with folders of their own."""
    nodes = {}
    for node in prepared.plan.cases[0].rounds[0].nodes:
        labels = {f"{LABEL}.task": "workload"}
        folder = f"{node.log_dir_host}-{name}"
        argv = (sys.executable, "-S", "-c", f"open({folder + '/rank0.out.log'!r}, 'w').write('done')")
        task = Task(name=name, argv=argv, environment={}, labels=labels)
        nodes[node.host] = node.model_copy(update={"workload": task, "log_dir_host": folder})
    return nodes


def _whole(prepared: PreparedRun, folder: Path, name: str) -> None:
    """What a round costs beside its payload: connect, check, push, start, wait, collect, clean."""
    hosts = make_hosts(prepared.settings.cluster)
    try:
        _check_on(hosts, prepared)
        for_each(hosts, lambda host: _push(host, prepared)).raise_first()
        for_each(_nodes(prepared, name), lambda node: _round(hosts[node.host], node, folder / name)).raise_first()
    finally:
        for_each(hosts, lambda host: host.close())


def _round(host: Host, node: NodePlan, folder: Path) -> None:
    host.run(["mkdir", "-p", node.log_dir_host], deadline=30)
    task = ProcessRuntime().create(host, node, node.workload, Bound(master_port=1))
    task.start()
    if task.wait(60) != 0:
        raise RuntimeError(f"{host.name}: the payload failed")
    task.finish(1.0)
    if not pull(host, node.log_dir_host, folder / node.host, deadline=60).files:
        raise RuntimeError(f"{host.name}: nothing was collected")
    host.run(["rm", "-rf", node.log_dir_host], deadline=30)


def _clush(bed: TestBed, config: Path) -> Callable[[str, str], float]:
    """Seconds that clush takes for a command on all hosts at once; it gets `stdin`."""
    options = {"User": "root", "IdentityFile": bed.key_file, "UserKnownHostsFile": bed.known_hosts, "BatchMode": "yes"}
    config.write_text("Host *\n" + "".join(f"    {key} {value}\n" for key, value in options.items()))
    hosts = ",".join(host.address for host in bed.hosts)

    def run(command: str, stdin: str) -> float:
        argv = ["clush", "-S", "-q", "-f", str(len(bed.hosts)), "-o", f"-F {config}", "-w", hosts, command]
        return _timed(lambda: _run(argv, stdin))

    return run


def _pssh(bed: TestBed, config: Path, command: str) -> float:
    hosts = [word for host in bed.hosts for word in ("-H", host.address)]
    argv = ["parallel-ssh", "-p", str(len(bed.hosts)), "-t", "60", "-x", f"-F {config}", *hosts, command]
    return _timed(lambda: _run(argv, ""))


def _run(argv: Sequence[str], stdin: str) -> None:
    answer = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=300)
    if answer.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {answer.returncode}: {(answer.stderr or answer.stdout)[-500:]}")


def _timed(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def _threads_and_descriptors() -> tuple[int, int]:
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
