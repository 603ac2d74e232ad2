"""Runs the real run.py against a test bed, as a person would."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.ssh import SshHost
from run_benchmarks.plan.plan import round_folder
from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.engine import bed_id
from tests.cluster.host import SSH_PORT, ClusterHost
from tests.cluster.light.__main__ import GO_ON
from tests.cluster.network import NETNS_FOLDER, namespaces
from tests.conftest import testbed_folder

LABEL = "org.clusterdyno.run"
RANK_MODULE = "training.benchmarks.driver.launch.rank"
# Settings of a test_conf.py without containers.
PROCESS: dict[str, object] = {"RUNTIME": "process", "PYTHON": sys.executable, "BASE_IMAGE": None, "WHEELHOUSE": None}
STEP_BEGIN = '"event": "STEP_BEGIN"'
RUN_SECONDS = 600.0
POLL_SECONDS = 0.25  # a look at all processes takes tens of milliseconds


@dataclass(frozen=True)
class Answer:
    """How a call of run.py ended. `folder` is its run's, where it made one."""

    exit_code: int
    output: str
    folder: Path | None

    def run_record(self) -> dict[str, Any]:
        """run.json."""
        assert self.folder is not None, self.output
        return dict(json.loads((self.folder / "run.json").read_text()))

    def round_record(self, case: str, index: int = 1, attempt: int = 1) -> dict[str, Any]:
        """A round's round.json."""
        assert self.folder is not None, self.output
        name = round_folder(index, attempt)
        return dict(json.loads((self.folder / case / name / "round.json").read_text()))


class Controller:
    """run.py with its two files in a folder of its own; results go below that folder, too. `root`: whose run.py."""

    def __init__(self, folder: Path, bed: TestBed, root: Path = ROOT) -> None:
        self._folder, self._bed, self.root = folder, bed, root
        self._started: list[subprocess.Popen[str]] = []
        self.cluster_conf = folder / "cluster_conf.py"
        self.test_conf = folder / "test_conf.py"
        self.logs = folder / "result"
        self.configure_cluster()

    def configure_cluster(self, **changes: object) -> None:
        """Write cluster_conf.py: the bed's hosts, changed by `changes`."""
        values: dict[str, object] = {
            "HOSTS": [host.address for host in self._bed.hosts],
            "SSH_USER": "root",
            "SSH_KEY": str(self._bed.key_file),
            "KNOWN_HOSTS": str(self._bed.known_hosts),
            **changes,
        }
        self.cluster_conf.write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))

    def configure_test(self, cases: dict[str, dict[str, object]], **changes: object) -> None:
        """Write test_conf.py: Docker with the bed's base image and wheelhouse, and these network cases."""
        values: dict[str, object] = {
            "VENDOR": "cpu",
            "RUNTIME": "docker",
            "HISTORY": "off",
            "BASE_IMAGE": images.BASE_IMAGE,
            "WHEELHOUSE": str(images.make_wheelhouse()),
            "FLAGPERF_LOG_PATH_HOST": str(self.logs),
            **changes,
        }
        values = {key: value for key, value in values.items() if value is not None}
        base = {"model": "network", "framework": "pytorch", "config": "config_CPUx2x2", "nnodes": 2, "nproc": 2}
        values["CASES"] = list(cases)
        values |= {name: {**base, **case} for name, case in cases.items()}
        self.test_conf.write_text("".join(f"{key} = {value!r}\n" for key, value in values.items()))

    def argv(self, *words: str) -> list[str]:
        """The command line of run.py with this controller's two files."""
        files = ["--cluster-conf", str(self.cluster_conf), "--test-conf", str(self.test_conf)]
        return [sys.executable, str(self.root / "run_benchmarks" / "run.py"), *files, *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start run.py; the caller waits for it."""
        argv = self.argv(*words)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self._folder)
        self._started.append(process)
        return process

    def call(self, *words: str) -> Answer:
        """Run run.py to its end."""
        return self.finish(self.start(*words))

    def finish(self, process: subprocess.Popen[str], within: float = RUN_SECONDS) -> Answer:
        """Wait for a started run.py. Raises TimeoutExpired where it has not ended within so many seconds."""
        output, _ = process.communicate(timeout=within)
        return Answer(process.returncode, output, self.newest_run())

    def end(self) -> None:
        """After a test that failed: end what still runs of run.py and remove what is left of its runs on the hosts."""
        running = [each for each in self._started if each.poll() is None]
        for process in running:
            process.kill()
            process.communicate()
        if running or self.containers():
            for run in self.logs.glob("run*"):
                self.call("clean", run.name)

    def let_go(self, case: str, attempt: int = 1) -> None:
        """Let the ranks of that case's first round end, which wait for it (WAITS of tests.cluster.faulty_project)."""
        folders = f"{self.logs}/.hosts/*/{case}/{round_folder(1, attempt)}/*_noderank[0-9]"
        for host in self._bed.hosts:
            host.exec(["sh", "-c", f"for folder in {folders}; do [ ! -d $folder ] || touch $folder/{GO_ON}; done"])

    def newest_run(self) -> Path | None:
        """The folder of the last run."""
        return max(self.logs.glob("run*"), default=None)

    def containers(self) -> list[str]:
        """Names of containers of ours on any host of the bed, running or not."""
        names = []
        for host in self._bed.hosts:
            client = host.connect_docker()
            try:
                names += [
                    str(c.name) for c in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
                ]
            finally:
                client.close()
        return names


def ssh_host(bed: TestBed, host: ClusterHost) -> SshHost:
    """A host of the bed as run.py speaks to it; not connected yet."""
    return SshHost(
        Endpoint(host=host.address, port=SSH_PORT, user="root", key=bed.key_file, known_hosts=bed.known_hosts)
    )


def wait_until(what: str, condition: Callable[[], object], seconds: float = 200.0) -> None:
    """Wait for a condition; fail saying what did not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds:g} s"
        time.sleep(POLL_SECONDS)


def rank_processes() -> dict[int, psutil.Process]:
    """The processes of all global ranks, of any benchmark, on the session's bed; others' are not ours."""
    networks = {(NETNS_FOLDER / name).stat().st_ino for name in namespaces(bed_id(testbed_folder() / "bed"))}
    found = {}
    for process in psutil.process_iter():
        try:
            if Path(f"/proc/{process.pid}/ns/net").stat().st_ino not in networks:
                continue
            rank = process.environ().get("RANK")
            if rank is not None and RANK_MODULE in process.cmdline():
                found[int(rank)] = process
        except (psutil.Error, OSError):
            continue
    return found


def rank_process(rank: int) -> psutil.Process | None:
    """The process of a global rank, None where there is none."""
    return rank_processes().get(rank)


def in_training(rank: int) -> bool:
    """Whether that rank has begun its work, by its own log: its standard output is a file."""
    process = rank_process(rank)
    if process is None:
        return False
    try:
        with Path(f"/proc/{process.pid}/fd/1").open(encoding="utf-8", errors="replace") as log:
            return stat.S_ISREG(os.fstat(log.fileno()).st_mode) and STEP_BEGIN in log.read()
    except OSError:
        return False
