"""Starts the workload of one node under torchrun's agent, with the files that the controller and the monitor rely on.

    python -m training.benchmarks.driver.launch --log_dir D [--interface auto|NAME] [--max_seconds N] \\
    [--launcher torchrun|processes] <torchrun options> -- -m <module> <arguments>

--launcher processes starts the ranks without torch (driver.launch.processes), for frameworks without torch.

It holds an exclusive flock on D/workload.lock while it lives, sends each rank's output to D/rank<global rank>.out.log,
keeps the progress of the ranks in D/rank_states.json, and writes D/node_exit.json at the end in any case. Its exit code
is 0 or that of the first failed rank (128 + signal). On SIGUSR1 every rank writes its stacks into its log. After
--max_seconds it stops as on SIGTERM, so that nothing keeps running on a host that lost its controller.
"""

import argparse
import contextlib
import faulthandler
import fcntl
import importlib.util
import ipaddress
import os
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TextIO

import psutil

import vendors
from common.garbage import load_modules, modules_are_loaded
from protocol.masking import mask_argv, mask_environment
from protocol.node_record import LOCK_FILE, NODE_EXIT_FILE, NodeExit, RankFailure, signal_name
from protocol.pulse import SOCKET_ENV
from protocol.rank_states import RANK_STATES_FILE
from training.benchmarks.catalog import LAUNCHERS
from training.benchmarks.driver.launch import processes
from training.benchmarks.driver.launch.failures import LaunchError, StartError
from training.benchmarks.driver.launch.fused import Detection
from training.benchmarks.driver.launch.numa_binding import CHOICES, NUMA_ENV
from training.benchmarks.driver.launch.rank_watch import RankWatch, now_ms
from training.benchmarks.driver.launch.scratch import scratch_folder
from training.benchmarks.driver.launch.stop_signals import Stopped, held, raise_on_signals


class InterfaceError(Exception):
    """No interface could be determined; the message states the address looked for and the interfaces there are."""


def interface_to(address: str, port: int) -> str:
    """Name of the interface from which this host reaches `address`:`port`; loopback when it is this host's 127.0.0.1.

    Connecting a UDP socket sends nothing: the kernel picks the route and its local address, the interface's.

    Raises:
        InterfaceError: the address does not resolve or has no route.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            local = probe.getsockname()[0]
    except OSError as error:
        raise InterfaceError(f"the master {address}:{port} cannot be reached from this host: {error}") from error
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.family == family and _same(entry.address, local) for entry in addresses):
            return name
    raise InterfaceError(f"no interface of this host has the address {local} that reaches {address}:{port}; {_list()}")


def check_interface(name: str) -> str:
    """`name` if this host has such an interface.

    Raises:
        InterfaceError: this host has no such interface.
    """
    if name not in psutil.net_if_addrs():
        raise InterfaceError(f"this host has no interface {name!r}; {_list()}")
    return name


def is_loopback(name: str) -> bool:
    """Whether every IP address of the interface is a loopback address; NCCL does not use such an interface."""
    entries = psutil.net_if_addrs()[name]
    found = [entry.address for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)]
    return bool(found) and all(_ip(text).is_loopback for text in found)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text.partition("%")[0])  # psutil appends the zone of link-local addresses


def _same(left: str, right: str) -> bool:
    return _ip(left) == _ip(right)


def _list() -> str:
    return f"available: {', '.join(sorted(psutil.net_if_addrs()))}"


# A monitor that tests the lock holds it for a moment; a workload holds it far longer than this.
_LOCK_PATIENCE_S = 1.0


@contextlib.contextmanager
def workload_lock(log_dir: Path) -> Iterator[None]:
    """Hold D/workload.lock. The kernel releases it when this process ends for any reason, and the monitor sees that.

    Raises:
        LaunchError: another workload holds it.
    """
    with (log_dir / LOCK_FILE).open("a") as file:
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise LaunchError(f"another workload runs in {log_dir}: its {LOCK_FILE} is held")
            time.sleep(_LOCK_PATIENCE_S / 100)
        yield


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


USAGE_EXIT_CODE = 2
_GLOO_IFNAME = "GLOO_SOCKET_IFNAME"


@dataclass(kw_only=True)
class Launch:
    """One launch: its command and, as it proceeds, its outcome."""

    log_dir: Path
    interface_option: str
    torchrun_options: list[str]
    command: list[str]
    max_seconds: float | None = None
    launcher: str = "torchrun"
    numa: str = "auto"
    started_ms: int = field(default_factory=now_ms)
    interface: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    torch: str | None = None
    scratch: Path | None = None
    detection: Detection | None = None
    failures: list[RankFailure] = field(default_factory=list)
    error: str | None = None
    stopped_by: int | None = None

    def exit_code(self) -> int:
        """The exit code: that of a failed launch, of a signal, or of the first failed rank."""
        if self.error is not None:
            return USAGE_EXIT_CODE
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        return self.failures[0].shell_code if self.failures else 0

    def record(self) -> NodeExit:
        """The content of node_exit.json."""
        return NodeExit(
            exit_code=self.exit_code(),
            error=self.error,
            signal=None if self.stopped_by is None else signal_name(self.stopped_by),
            failures=self.failures,
            argv=mask_argv(sys.orig_argv),
            interface=self.interface,
            environment=mask_environment(self.environment),
            started_ms=self.started_ms,
            finished_ms=now_ms(),
            torch=self.torch,
            cpu_s=_cpu_seconds(),
            fused=self.detection.found if self.detection else {},
        )


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(each.ru_utime + each.ru_stime for each in used), 3)


def main() -> int:
    """Run the launch that sys.argv describes; returns the exit code. Usage errors leave with 2."""
    faulthandler.enable()
    launch = parse(sys.argv[1:])
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    raise_on_signals(when_stuck=lambda number: _leave_stuck(launch, number))
    try:
        launch.log_dir.mkdir(parents=True, exist_ok=True)
        with workload_lock(launch.log_dir):
            for earlier in (NODE_EXIT_FILE, RANK_STATES_FILE):
                (launch.log_dir / earlier).unlink(missing_ok=True)
            if launch.max_seconds is not None:
                _stop_after(launch.max_seconds)
            _run(launch)
            launch.record().write(launch.log_dir)
    except (LaunchError, OSError) as error:
        _say(str(error))
        return USAGE_EXIT_CODE
    except Stopped as stop:  # before the lock was held: there is nothing to record
        return 128 + stop.number
    return launch.exit_code()


def parse(argv: Sequence[str]) -> Launch:
    """The launch that a command line describes. Usage errors leave with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m training.benchmarks.driver.launch",
        usage="%(prog)s --log_dir DIR [--interface auto|NAME] [--max_seconds N] [--launcher torchrun|processes]"
        " [--numa auto|off] TORCHRUN_OPTIONS -- -m MODULE ...",
        description="Run one node's ranks under torchrun. TORCHRUN_OPTIONS are those of `torchrun --help`.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--log_dir", type=Path, required=True, help="folder for rank logs, workload.lock, node_exit.json"
    )
    parser.add_argument("--interface", default="auto", help="interface that reaches the master (auto: by its route)")
    parser.add_argument("--max_seconds", type=_seconds, help="stops by itself after these (default: never)")
    parser.add_argument("--launcher", choices=LAUNCHERS, default="torchrun", help="who starts the ranks")
    parser.add_argument("--numa", choices=CHOICES, default="auto", help="whether ranks are bound to NUMA nodes")
    split = list(argv).index("--") if "--" in argv else len(argv)
    options, torchrun_options = parser.parse_known_args(argv[:split])
    command = list(argv[split + 1 :])
    if len(command) < 2 or command[0] != "-m":
        parser.error("after the options must follow: -- -m MODULE ARGUMENTS")
    return Launch(
        log_dir=options.log_dir.absolute(),
        interface_option=options.interface,
        torchrun_options=torchrun_options,
        command=command[1:],
        max_seconds=options.max_seconds,
        launcher=options.launcher,
        numa=options.numa,
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= threading.TIMEOUT_MAX:
        raise ValueError(text)
    return value


def _stop_after(seconds: float) -> None:
    """Send this process a stop signal after `seconds`; a signal also reaches it while it waits inside torch."""

    def stop() -> None:
        _say(f"its --max_seconds {seconds:g} are over")
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()


def _run(launch: Launch) -> None:
    """Launch and record in `launch` how it ends; every failure that belongs into the record is caught."""
    try:
        _check_module(launch.command[0])
        with _detection(launch):
            _run_ranks(launch)
    except (LaunchError, OSError) as error:
        launch.error = str(error)
        _say(launch.error)
    except Stopped as stop:
        launch.stopped_by = stop.number
        _say(f"stopped by {stop}; all ranks of this node are gone")
    for failure in launch.failures:
        what = failure.signal or f"exit code {failure.exit_code}"
        _say(f"rank {failure.rank}: {what}{' (stopped by the launcher)' if failure.stopped else ''}\n{failure.message}")


@contextlib.contextmanager
def _detection(launch: Launch) -> Iterator[None]:
    """Find out beside the ranks, at the lowest priority, which libraries of fused kernels import here."""
    try:
        with held():  # a signal here leaves no process behind
            launch.detection = Detection()
        yield
    finally:
        if launch.detection is not None:
            launch.detection.end()


def _run_ranks(launch: Launch) -> None:
    agent = _agent(launch.launcher)
    launch.torch = agent.TORCH_VERSION
    with scratch_folder() as scratch, RankWatch(scratch, launch.log_dir) as watch:
        launch.scratch = scratch
        command = ["--log_dir", str(launch.log_dir), "--", *launch.command]
        try:
            arguments = agent.parse_options([*launch.torchrun_options, "--log_dir", str(scratch)], command)
            address, port = agent.master(arguments)
            _prepare_environment(launch, address, port, agent.local_world_size(arguments))
            os.environ[SOCKET_ENV] = str(watch.path)
            with _stacks_on_signal(watch):
                failures = agent.run(arguments, watch, launch.log_dir)
        except (StartError, InterfaceError) as error:
            raise LaunchError(str(error)) from error
    launch.failures = failures


def _agent(launcher: str) -> ModuleType:
    """The module that starts the ranks."""
    if launcher == "processes":
        return processes
    try:
        # torch takes seconds to import: the lock and the signal handlers are in place before.
        load_modules()
        with held():
            from training.benchmarks.driver.launch import agent
        modules_are_loaded()
    except ImportError as error:
        raise LaunchError(f"torch cannot be used on this host: {error}") from error
    return agent


@contextlib.contextmanager
def _stacks_on_signal(watch: RankWatch) -> Iterator[None]:
    """SIGUSR1 makes the ranks write their stacks while they run; before and after, it has no effect."""
    signal.signal(signal.SIGUSR1, lambda _number, _frame: watch.request_stacks())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _prepare_environment(launch: Launch, address: str, port: int, local_world_size: int) -> None:
    """Set the variables that the ranks inherit; one that is already set keeps its value. Both are recorded."""
    chosen = launch.interface_option
    name = interface_to(address, port) if chosen == "auto" else check_interface(chosen)
    launch.interface = name
    cores = len(os.sched_getaffinity(0))
    wanted = {"OMP_NUM_THREADS": str(max(1, cores // local_world_size)), "PYTHONUNBUFFERED": "1"}
    wanted[_GLOO_IFNAME] = name
    of_vendors = dict.fromkeys(each for vendor in vendors.working() for each in vendor.socket_variables)
    if launch.numa != "auto":
        wanted[NUMA_ENV] = launch.numa
    if not is_loopback(name):
        wanted |= dict.fromkeys(of_vendors, name)
    for key, value in wanted.items():
        if key in (_GLOO_IFNAME, *of_vendors) and chosen != "auto" and os.environ.get(key, value) != value:
            _say(f"{key} is set to {os.environ[key]!r} and stays so, although --interface says {value!r}")
        os.environ.setdefault(key, value)
    launch.environment = {key: os.environ[key] for key in (*wanted, *of_vendors) if key in os.environ}


def _check_module(module: str) -> None:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise LaunchError(f"the entry module {module!r} cannot be found: {error}") from error
    if found is None:
        raise LaunchError(f"there is no entry module {module!r} on {os.pathsep.join(path or '.' for path in sys.path)}")


def _leave_stuck(launch: Launch, number: int) -> None:
    """Record and exit when the main thread is blocked inside torch; the ranks end with this process."""
    launch.stopped_by = number
    if launch.detection is not None:
        launch.detection.end()
    launch.record().write(launch.log_dir)
    if launch.scratch is not None:
        shutil.rmtree(launch.scratch, ignore_errors=True)
    _say(f"stopped by {signal_name(number)} while torch waited for the other nodes")
    os._exit(launch.exit_code())


def _say(text: str) -> None:
    print(f"launch: {text}", file=sys.stderr, flush=True)
