"""Calls to an engine that answers a byte now and then, or not at all: each ends by its time-out in total."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker.errors
import pytest
import requests

from run_benchmarks.errors import InterruptedRunError, LinkLostError
from run_benchmarks.hosts import docker_client
from run_benchmarks.hosts.docker_client import LocalAPIClient
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.runtimes.docker_calls import call

TIMEOUT, SLACK = 1, 2.0
PAUSE = 0.3
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
Serve = Callable[[socket.socket, threading.Event], None]


class Engine:
    """A Unix socket that does the same with every connection once it has read something."""

    def __init__(self, path: Path, serve: Serve) -> None:
        self.url = f"unix://{path}"
        self._serve, self._over = serve, threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._answer, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._serve(connection, self._over)
            except OSError:
                return

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)


def drip(connection: socket.socket, over: threading.Event, data: bytes) -> None:
    for byte in data:
        connection.sendall(bytes([byte]))
        if over.wait(PAUSE):
            return


def drip_head(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(1 << 16)
    drip(connection, over, HEAD)


def drip_body(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.sendall(HEAD)
    drip(connection, over, b"[" + b" " * 99998 + b"]")


def stop_in_the_body(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.sendall(HEAD + b"[")
    over.wait(60)


def say_nothing(_: socket.socket, over: threading.Event) -> None:
    over.wait(60)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path / "docker.sock", request.param)
    yield made
    made.close()


def client_of(engine: Engine, check: Callable[[], None] | None = None) -> LocalAPIClient:
    return LocalAPIClient(check=check, base_url=engine.url, version="1.41", timeout=TIMEOUT)


@pytest.mark.parametrize("engine", [drip_head, drip_body, say_nothing], indirect=True)
def test_a_call_ends_by_its_time_out_in_total(engine: Engine) -> None:
    client = client_of(engine)
    for action in (client.containers, client.version, lambda: client.wait("x", timeout=TIMEOUT)):
        began = time.monotonic()
        with pytest.raises(LinkLostError, match=r"did not answer.*timed out"):
            call(LocalHost("here"), "asking", action)
        assert time.monotonic() - began < TIMEOUT + SLACK
    client.close()


@pytest.mark.parametrize("engine", [drip_head], indirect=True)
def test_so_does_the_first_call_of_a_client(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    began = time.monotonic()
    with pytest.raises(Exception, match="no Docker engine answers"):
        LocalHost("here").open_docker(TIMEOUT)
    assert time.monotonic() - began < TIMEOUT + SLACK


@pytest.mark.parametrize("engine", [drip_body], indirect=True)
def test_a_stream_may_take_longer_than_its_time_out(engine: Engine) -> None:
    client = client_of(engine)
    began = time.monotonic()
    for _ in client.get_image("x", chunk_size=1):
        if time.monotonic() - began > 2 * TIMEOUT:
            break
    client.close()


@pytest.mark.parametrize("engine", [stop_in_the_body], indirect=True)
def test_a_stream_that_falls_silent_ends(engine: Engine) -> None:
    client = client_of(engine)
    began = time.monotonic()
    with pytest.raises(requests.RequestException, match="timed out"):
        list(client.get_image("x", chunk_size=1))
    assert time.monotonic() - began < TIMEOUT + SLACK
    client.close()


@pytest.mark.parametrize("engine", [say_nothing, drip_body], indirect=True)
def test_a_check_that_raises_ends_a_call_that_waits(engine: Engine) -> None:
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise InterruptedRunError("interrupted by SIGTERM")

    client = client_of(engine, check)
    client.timeout = 60
    timer = threading.Timer(1.0, stop.set)
    timer.start()
    began = time.monotonic()
    with pytest.raises(InterruptedRunError):
        client.pull("x")
    assert time.monotonic() - began < 1.0 + SLACK
    timer.join()
    with pytest.raises(InterruptedRunError):
        client.containers()
    client.close()


def flood(connection: socket.socket, over: threading.Event) -> None:
    connection.recv(1 << 16)
    connection.sendall(HEAD.replace(b"100000", b"100000000000"))
    while not over.is_set():
        connection.sendall(b" " * (1 << 16))


@pytest.mark.parametrize("engine", [flood], indirect=True)
def test_an_answer_without_end_is_cut_off(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_client, "MAX_ANSWER_BYTES", 1 << 20)
    client = client_of(engine)
    client.timeout = 30
    with pytest.raises(LinkLostError, match="answers with more than 1048576 bytes"):
        call(LocalHost("here"), "asking", client.containers)
    client.close()


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises((docker.errors.DockerException, requests.RequestException)):
        LocalAPIClient(base_url=f"unix://{tmp_path}/none", version="1.41", timeout=TIMEOUT).version()
