"""Connections within their time limits; the name servers of this machine are left alone."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.hosts.connections import dial
from tests.run_benchmarks.hosts.sshd import free_port

LOCAL = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOCAL, 0)) as listening:
        yield listening


@pytest.mark.parametrize("host", [LOCAL, "localhost"])
def test_a_name_and_an_address_are_reached(server: socket.socket, host: str) -> None:
    port = server.getsockname()[1]
    with dial(host, port, seconds=10) as connection:
        assert connection.getpeername() == (LOCAL, port)


def test_the_next_address_of_a_name_is_tried(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with an IPv6 address that nothing listens on, or that no route leads to."""
    port = server.getsockname()[1]
    known = socket.getaddrinfo(LOCAL, port, type=socket.SOCK_STREAM)
    silent = socket.getaddrinfo("::1", free_port(), type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: silent + known)
    with dial("both", port, seconds=10) as connection:
        assert connection.getpeername() == (LOCAL, port)


def test_every_reason_is_told() -> None:
    with pytest.raises(OSError, match=r"^\[Errno 111\] Connection refused$"):
        dial(LOCAL, free_port(), seconds=10)
    with pytest.raises(OSError, match=r"Name or service not known|Temporary failure|No address"):
        dial("no-such-host.invalid", 22, seconds=30)


def test_an_address_that_says_nothing() -> None:
    with socket.socket() as full:
        full.bind((LOCAL, 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]  # a full queue answers no further request
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        with pytest.raises(TimeoutError, match=r"^timed out$"):
            dial(LOCAL, full.getsockname()[1], seconds=0.3)
        for each in waiting:
            each.close()


def test_a_dead_name_server_counts_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(60))
    try:
        with pytest.raises(TimeoutError, match=r"no name server says within 0\.2 s what address gpu01 has"):
            dial("gpu01", 22, seconds=0.2)
    finally:
        answered.set()


@pytest.mark.skipif(os.geteuid() != 0, reason="another resolv.conf needs a mount namespace")
def test_a_real_resolver_whose_name_server_is_dead(tmp_path: Path) -> None:
    """The C library would wait 20 s for this one: two attempts of ten seconds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.2", 53))
        resolver = tmp_path / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.2\noptions timeout:10 attempts:2\n")
        code = "from run_benchmarks.hosts.connections import dial; dial('gpu01.example', 22, seconds=1)"
        script = 'mount --bind "$1" /etc/resolv.conf && exec "$2" -c "$3"'
        argv = ["unshare", "-m", "sh", "-c", script, "sh", str(resolver), sys.executable, code]
        process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            _, said = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    assert process.returncode == 1
    assert "no name server says within 1 s what address gpu01.example has" in said
