"""A thousand hosts: bounded threads, nothing left of them, nobody's answer lost when somebody fails."""

import gc
import sys
import threading
from pathlib import Path

from run_benchmarks.errors import ConnectError
from run_benchmarks.hosts.base import Completed, Host
from run_benchmarks.hosts.fleet import MAX_PARALLEL
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.facts import Questions, gather
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.settings import load_settings
from tests.performance.simulated_host import SimulatedHost

COUNT = 1000


def questions(folder: Path) -> Questions:
    return Questions(
        deploy=str(folder / "deploy"),
        log_root=str(folder / "logs"),
        code_dir="/no/such/code",
        python=None,
        packages=(),
        master=None,
        names=(),
        device_globs=(),
        data=(),
    )


class Recording(LocalHost):
    """Keeps what the last command wrote."""

    answer = ""

    def run(self, *args: object, **options: object) -> Completed:
        completed = super().run(*args, **options)  # type: ignore[arg-type]
        self.answer = completed.stdout
        return completed


class Counted(SimulatedHost):
    """Counts how many of its kind are asked at once."""

    lock, now, most = threading.Lock(), 0, 0

    def connect(self) -> None:
        with Counted.lock:
            Counted.now += 1
            Counted.most = max(Counted.most, Counted.now)
        super().connect()
        with Counted.lock:
            Counted.now -= 1
        if self.name == "sim500":
            raise ConnectError(self.name, "port 22 cannot be reached")


def test_a_thousand_hosts_are_checked_by_a_bounded_number_of_threads(tmp_path: Path) -> None:
    names = [f"sim{number}" for number in range(COUNT)]
    (tmp_path / "cluster_conf.py").write_text(f"HOSTS = {names!r}\n")
    case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 1}
    lines = [
        "VENDOR = 'cpu'",
        "RUNTIME = 'process'",
        f"PYTHON = {sys.executable!r}",
        "CASES = ['ONE']",
        f"ONE = {case!r}",
    ]
    (tmp_path / "test_conf.py").write_text("\n".join(lines) + "\n")
    prepared = prepare(load_settings(tmp_path / "cluster_conf.py", tmp_path / "test_conf.py"), "run20261121191924")
    recording = Recording("localhost")
    gather(recording, questions(tmp_path))
    hosts: dict[str, Host] = {name: Counted(name, recording.answer) for name in names}
    gc.collect()
    threads, descriptors = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    reports = check_hosts(hosts, prepared.settings, prepared.plan, prepared.resolved.vendor, prepared.runtime())
    assert list(reports) == names
    assert [name for name, report in reports.items() if report.facts is None] == ["sim500"]
    assert "cannot be reached" in str(reports["sim500"].findings[0])
    assert 1 < Counted.most <= MAX_PARALLEL
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
