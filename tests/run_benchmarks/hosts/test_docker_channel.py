"""The Docker SDK over a host's SSH connection, against real engines on real hosts."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from run_benchmarks.errors import ConnectError, LinkLostError, TaskError
from run_benchmarks.hosts.docker_channel import MAX_CONNECTIONS
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.ssh import MAX_CHANNELS, SshHost
from run_benchmarks.runtimes.docker_calls import call
from tests.cluster import images
from tests.cluster.bed import TestBed

pytestmark = pytest.mark.cluster
NAME = "clusterdyno-channel-test"
SCRIPT = "for number in 1 2 3; do echo line $number; sleep 0.3; done; echo err >&2; exit 5"


@pytest.fixture
def host(testbed: TestBed) -> Iterator[SshHost]:
    address = testbed.hosts[0].address
    host = SshHost(Endpoint(host=address, port=22, user="root", key=testbed.key_file, known_hosts=testbed.known_hosts))
    host.connect()
    yield host
    host.connect()
    for container in host.docker().containers(all=True, filters={"label": NAME}):
        host.docker().remove_container(container["Id"], force=True)
    host.close()


def start(host: SshHost, script: str) -> str:
    container = host.docker().create_container(
        images.BASE_IMAGE, ["sh", "-c", script], labels={NAME: ""}, host_config={"NetworkMode": "none"}
    )
    host.docker().start(container["Id"])
    return str(container["Id"])


def free_channels(host: SshHost) -> int:
    taken = 0
    while host._slots.acquire(blocking=False):
        taken += 1
    for _ in range(taken):
        host._slots.release()
    return taken


def test_the_engine_of_the_host_answers(host: SshHost, testbed: TestBed) -> None:
    with contextlib.closing(testbed.hosts[0].connect_docker()) as direct:  # past ssh
        assert host.docker().version()["Version"] == direct.version()["Version"]
        assert host.docker().info()["ID"] == direct.info()["ID"]
    assert host.docker() is host.docker()


def test_a_container_runs_and_its_logs_stream(host: SshHost) -> None:
    container = start(host, SCRIPT)
    arrivals = [(time.monotonic(), line) for line in host.docker().logs(container, stream=True, stderr=False)]
    assert b"".join(line for _, line in arrivals) == b"line 1\nline 2\nline 3\n"
    assert arrivals[-1][0] - arrivals[0][0] > 0.2  # they came while it ran, not at its end
    assert host.docker().wait(container)["StatusCode"] == 5
    assert host.docker().logs(container, stdout=False) == b"err\n"
    assert [c["Id"] for c in host.docker().containers(all=True, filters={"label": NAME})] == [container]


def test_an_image_comes_as_a_stream(host: SshHost) -> None:
    client = host.open_docker(60)
    size, head = 0, b""
    for chunk in client.get_image(images.BASE_IMAGE):
        head, size = head or chunk, size + len(chunk)
        if size > 8 << 20:
            break
    assert size > 8 << 20
    assert head[257:262] == b"ustar"
    client.close()  # in the middle of the stream
    assert free_channels(host) == MAX_CHANNELS


def test_a_client_holds_few_channels_and_gives_them_back(host: SshHost) -> None:
    client = host.open_docker(60)
    most = MAX_CHANNELS
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            client.version()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + 2
    while time.monotonic() < limit:
        most = min(most, free_channels(host))
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert most >= MAX_CHANNELS - MAX_CONNECTIONS
    client.close()
    assert free_channels(host) == MAX_CHANNELS


def test_what_docker_refuses_is_an_error_of_the_task(host: SshHost) -> None:
    with pytest.raises(TaskError, match=r"looking: .*No such container: nobody"):
        call(host, "looking", lambda: host.docker().inspect_container("nobody"))


def test_a_broken_link_is_a_lost_link_and_heals(host: SshHost, testbed: TestBed) -> None:
    container = start(host, "sleep 600")
    client = host.docker()
    errors: list[Exception] = []

    def wait() -> None:
        try:
            call(host, "waiting", lambda: client.wait(container, timeout=60))
        except LinkLostError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(1)
    testbed.hosts[0].stop_sshd()
    try:
        thread.join(20)
        assert not thread.is_alive()
        assert len(errors) == 1
        with pytest.raises(LinkLostError):
            call(host, "asking", client.version)
        with pytest.raises(LinkLostError):
            host.open_docker(5)
    finally:
        testbed.hosts[0].start_sshd()
    host.connect()
    assert host.docker() is not client
    assert host.docker().inspect_container(container)["State"]["Running"]
    assert free_channels(host) >= MAX_CHANNELS - 1


def test_a_stopped_engine_is_said(host: SshHost, testbed: TestBed) -> None:
    testbed.hosts[0].stop_engine()
    try:
        with pytest.raises(ConnectError, match="no Docker engine answers"):
            host.docker()
    finally:
        testbed.hosts[0].start_engine()
    assert host.docker().version()["Version"]
