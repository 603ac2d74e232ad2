"""Hosts that freeze: commands end there by the host's own clock; a link that takes nothing holds up nobody here."""

import contextlib
import io
import os
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from run_benchmarks.errors import DeadlineError, HostError, LinkLostError
from run_benchmarks.hosts.login_shell import OWN_CLOCK_SECONDS
from run_benchmarks.hosts.ssh import SshHost
from tests.cluster.system import frozen
from tests.run_benchmarks.hosts.conftest import Remains
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer, public_part

SLACK = 2.0
DEADLINE = 4.0  # by then the command runs, and is frozen, on a busy machine, too
SECONDS = 30.0


def test_a_command_ends_by_the_host_s_own_clock_where_sshd_is_frozen(own_sshd: SshServer, remains: Remains) -> None:
    host = own_sshd.host()
    host.connect()
    sessions = own_sshd.session_pids()
    with frozen(sessions):
        pass  # they can be found and thawed
    errors: list[Exception] = []

    def run() -> None:
        try:
            host.run(["sh", "-c", f"sleep {remains.seconds} | cat"], deadline=DEADLINE)
        except DeadlineError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert remains.wait(running=True)
    with frozen(own_sshd.session_pids()):
        thread.join(DEADLINE + SLACK)
        assert not thread.is_alive() and len(errors) == 1
        assert remains.wait(running=False, seconds=OWN_CLOCK_SECONDS + SLACK) == []
    host.close()


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def test_a_command_that_was_frozen_itself_ends_when_it_thaws(own_sshd: SshServer, remains: Remains) -> None:
    host = own_sshd.host()
    host.connect()

    def run() -> None:
        with pytest.raises(HostError):
            host.run(["sleep", remains.seconds], deadline=DEADLINE)

    thread = threading.Thread(target=run)
    thread.start()
    assert remains.wait(running=True)
    group = os.getpgid(remains.pids()[0])  # with the clock itself, whose command line does not show what it runs
    with frozen([*own_sshd.session_pids(), *(pid for pid in psutil.pids() if _group(pid) == group)]):
        thread.join(DEADLINE + SLACK)
        assert not thread.is_alive()
        time.sleep(OWN_CLOCK_SECONDS)
        assert remains.pids()
    assert remains.wait(running=False) == []
    host.close()


def test_nothing_of_the_clock_stays_after_a_command_s_end(ssh_host: SshHost) -> None:
    pid = ssh_host.run(["sh", "-c", "ps -o sid= -p $$"], deadline=86399.0).stdout.strip()
    listed = ssh_host.run(["ps", "-o", "pid=,args=", "-s", pid], deadline=SECONDS, check=False)
    assert listed.stdout == ""


class Wire:
    """Carries connections to a server until it is cut: then it reads nothing more and stays open."""

    def __init__(self, port: int) -> None:
        self._port, self._cut, self._sockets = port, threading.Event(), list[socket.socket]()
        self._listener = socket.create_server((ADDRESS, 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # its connections get the same
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((ADDRESS, self._port))
                self._sockets += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(1 << 16)) and not self._cut.is_set():
                target.sendall(data)

    def freeze(self) -> None:
        self._cut.set()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            each.close()


def test_a_connection_that_takes_nothing_more_holds_nobody_up(own_sshd: SshServer, tmp_path: Path) -> None:
    """Every buffer on the way is full, so that paramiko can send neither a request nor the close of a channel."""
    wire = Wire(own_sshd.port)
    known = tmp_path / "known"
    known.write_text(f"[{ADDRESS}]:{wire.port} {public_part(own_sshd.host_key)}\n")
    host = own_sshd.host(known_hosts=known, port=wire.port)
    host.connect()
    ended: list[float] = []
    begun, is_frozen = threading.Barrier(6), threading.Event()

    class Late(io.BytesIO):
        """More than all buffers hold, once the wire takes nothing more."""

        def read(self, size: int | None = -1) -> bytes:
            if not is_frozen.is_set():
                begun.wait()
                is_frozen.wait()
            return bytes(size or 0)

    def fill() -> None:
        began = time.monotonic()
        with pytest.raises(HostError):
            host.run(["sh", "-c", "cat >/dev/null"], stdin=Late(), deadline=6.0)
        ended.append(time.monotonic() - began)

    threads = [threading.Thread(target=fill) for _ in range(5)]
    for thread in threads:
        thread.start()
    begun.wait(5)
    wire.freeze()
    is_frozen.set()
    time.sleep(1.0)
    began = time.monotonic()
    with pytest.raises((LinkLostError, DeadlineError)):
        host.run(["true"], deadline=1.0)
    assert time.monotonic() - began < 1.0 + SLACK
    for thread in threads:
        thread.join(10)
    assert len(ended) == 5 and max(ended) < 6.0 + SLACK
    began = time.monotonic()
    host.close()
    assert time.monotonic() - began < SLACK
    wire.close()
