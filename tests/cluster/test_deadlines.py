"""Every remote operation ends within SLACK of its own deadline, also where the host freezes or the link goes dead."""

import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import docker.errors
import pytest
import requests

from run_benchmarks.errors import ClusterDynoError, DeadlineError
from run_benchmarks.hosts.ssh import KILL_SECONDS, SshHost
from run_benchmarks.hosts.ssh_login import CONNECT_SECONDS
from run_benchmarks.hosts.transfer import push
from tests.cluster import host as bed_host
from tests.cluster import system
from tests.cluster.bed import TestBed
from tests.cluster.controller import ssh_host, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SLACK = 10.0
"""For a busy machine; without a deadline of its own each of these waits for a minute or for ever."""
DEADLINE = 1.0
ERRORS = (ClusterDynoError, docker.errors.DockerException, requests.RequestException, OSError)


@pytest.fixture
def host(testbed: TestBed) -> Iterator[SshHost]:
    made = ssh_host(testbed, testbed.hosts[0])
    made.connect()
    yield made
    made.close()


def frozen(target: bed_host.ClusterHost) -> AbstractContextManager[None]:
    """sshd and its sessions stand still; the connections stay open."""
    return system.frozen(target.pids(*bed_host.SSHD))


@contextmanager
def unplugged(target: bed_host.ClusterHost) -> Iterator[None]:
    """No packet passes in either direction."""
    target.link_down()
    try:
        yield
    finally:
        target.link_up()


def ends_within(seconds: float, action: Callable[[], object]) -> None:
    began = time.monotonic()
    with pytest.raises(ERRORS):
        action()
    assert time.monotonic() - began < seconds


@pytest.mark.parametrize("broken", [frozen, unplugged])
def test_operations_on_a_host_that_says_nothing(
    host: SshHost, testbed: TestBed, broken: Callable[[bed_host.ClusterHost], AbstractContextManager[None]]
) -> None:
    engine = host.open_docker(round(DEADLINE))
    assert engine.ping()
    archive = os.urandom(64 << 20)
    with broken(testbed.hosts[0]):
        ends_within(DEADLINE + SLACK, lambda: host.run(["true"], deadline=DEADLINE))
        ends_within(DEADLINE + SLACK, lambda: push(host, io.BytesIO(archive), "/x", deadline=DEADLINE))
        ends_within(DEADLINE + SLACK, engine.ping)
        ends_within(DEADLINE + SLACK, lambda: host.open_docker(round(DEADLINE)))
        ends_within(CONNECT_SECONDS + SLACK, host.reconnect)
        began = time.monotonic()
        host.close()
        assert time.monotonic() - began < SLACK
    host.connect()
    assert host.run(["echo", "back"], deadline=10).stdout == "back\n"


def test_a_freeze_while_a_large_archive_goes_up(host: SshHost, testbed: TestBed) -> None:
    """The sender's buffers are full then: nothing can be sent, not even the close of the channel."""
    results: list[BaseException] = []

    def send() -> None:
        try:
            host.run(["sh", "-c", "sleep 1; cat >/dev/null"], stdin=io.BytesIO(bytes(1 << 30)), deadline=DEADLINE + 2)
        except ClusterDynoError as error:
            results.append(error)

    began = time.monotonic()
    thread = threading.Thread(target=send)
    thread.start()
    time.sleep(1.5)
    with frozen(testbed.hosts[0]):
        thread.join(DEADLINE + 2 + SLACK)
        assert not thread.is_alive() and time.monotonic() - began < DEADLINE + 2 + SLACK
    assert len(results) == 1


def test_nothing_is_left_of_what_passed_its_deadline(host: SshHost, testbed: TestBed) -> None:
    mark = "86399.25"
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        host.run(["sh", "-c", f"sleep {mark} | cat"], deadline=DEADLINE)
    assert time.monotonic() - began < DEADLINE + KILL_SECONDS + SLACK
    node = testbed.hosts[0]
    wait_until(
        "the end of it", lambda: node.exec(["pgrep", "-xf", f"sleep {mark}"], check=False).returncode == 1, SLACK
    )
