"""The head node itself: what differs from a host behind ssh."""

import io
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from run_benchmarks.errors import ConnectError
from run_benchmarks.hosts.local import LocalHost
from tests.run_benchmarks.hosts.conftest import Remains
from tests.run_benchmarks.hosts.sshd import open_descriptors

SECONDS = 30.0


def test_no_engine_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    with pytest.raises(ConnectError, match="localhost: no Docker engine answers"):
        LocalHost("localhost").docker()
    with pytest.raises(ConnectError):
        LocalHost("localhost").open_docker(5)


def test_no_child_and_no_descriptor_remains() -> None:
    host = LocalHost("localhost")
    host.run(["true"], deadline=SECONDS)
    before, children = open_descriptors(), psutil.Process().children()
    for _ in range(30):
        host.run(["cat"], stdin=io.BytesIO(b"x"), deadline=SECONDS)
    assert open_descriptors() <= before
    assert [child for child in psutil.Process().children() if child not in children] == []


def test_an_interrupt_kills_the_command(remains: Remains) -> None:
    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalHost("localhost").run(
            ["sh", "-c", f"echo x; sleep {remains.seconds}"], deadline=SECONDS, on_stdout=interrupt
        )
    assert remains.wait(running=False) == []


def test_a_stranger_who_inherited_stdin_does_not_hold_us_up(remains: Remains) -> None:
    """A daemon that left the group keeps the pipe of stdin open and reads nothing."""
    program = (
        "import os, subprocess; null = subprocess.DEVNULL; "
        f"subprocess.Popen(['sleep', '{remains.seconds}'], stdout=null, stderr=null, start_new_session=True)"
    )
    started = time.monotonic()
    done = LocalHost("localhost").run([sys.executable, "-c", program], stdin=io.BytesIO(b"x" * (8 << 20)), deadline=20)
    assert done.exit_code == 0
    assert time.monotonic() - started < 15
    for pid in remains.pids():
        os.kill(pid, 9)
