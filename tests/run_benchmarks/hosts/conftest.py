"""A real sshd, and both kinds of hosts."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.ssh import SshHost
from tests.run_benchmarks.hosts.sshd import SSHD, SshServer


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[SshServer]:
    """A server that a test may hurt."""
    if SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    folder = tmp_path / "own_sshd"
    folder.mkdir()
    server = SshServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def make_sshd(tmp_path: Path) -> Iterator[Callable[..., SshServer]]:
    """Starts further servers: a name, and lines of sshd_config."""
    if SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    servers: list[SshServer] = []

    def make(name: str, extra: str = "") -> SshServer:
        server = SshServer(tmp_path / name, extra)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def ssh_host(sshd: SshServer) -> Iterator[SshHost]:
    """A connected host behind ssh."""
    host = sshd.host()
    host.connect()
    try:
        yield host
    finally:
        host.close()


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """The head node itself, then a host behind ssh."""
    if request.param == "ssh":
        yield request.getfixturevalue("ssh_host")
        return
    local = LocalHost("localhost")
    local.connect()
    yield local
    local.close()


class Remains:
    """Finds processes by a word of their command line that nobody else uses."""

    def __init__(self, tmp_path: Path) -> None:
        # A number of seconds that no other `sleep` of the machine has.
        self.seconds = f"60.{abs(hash((str(tmp_path), threading.get_ident(), time.monotonic_ns()))) % 10**9:09d}"

    def pids(self) -> list[int]:
        """Processes whose command line holds `seconds`, zombies aside."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            words = process.info["cmdline"] or []
            if any(self.seconds in word for word in words) and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.info["pid"])
        return found

    def wait(self, *, running: bool, seconds: float = 5.0) -> list[int]:
        """Wait until there are such processes, or until there are none; what there is in the end."""
        limit = time.monotonic() + seconds
        while bool(pids := self.pids()) != running and time.monotonic() < limit:
            time.sleep(0.02)
        return pids


@pytest.fixture
def remains(tmp_path: Path) -> Remains:
    return Remains(tmp_path)
