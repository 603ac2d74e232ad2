"""What a container wrote is read as a stream, in bounded memory, whatever its engine sends."""

import http.server
import threading
import tracemalloc
from collections.abc import Iterator

import docker
import docker.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_benchmarks.runtimes.docker import NOT_READ, Frames, read_output


def frame(content: bytes, stream: int = 1) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(content).to_bytes(4, "big") + content


@given(st.lists(st.binary(max_size=300)), st.integers(1, 100))
def test_frames_cut_anywhere(contents: list[bytes], step: int) -> None:
    data, frames = b"".join(map(frame, contents)), Frames()
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    assert b"".join(piece for chunk in pieces for piece in frames.contents(chunk)) == b"".join(contents)


class Engine(http.server.ThreadingHTTPServer):
    """Answers a request for logs with `pieces`, and anything with 404 where there are none."""

    pieces: Iterator[bytes] | None = None
    asked = ""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self.server.asked = self.path
        self.send_response(404 if self.server.pieces is None else 200)
        self.end_headers()
        try:
            for piece in self.server.pieces or [b'{"message": "No such container: x"}']:
                self.wfile.write(piece)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def engine() -> Iterator[Engine]:
    server = Engine(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(engine: Engine) -> Iterator[docker.APIClient]:
    made = docker.APIClient(base_url=f"tcp://127.0.0.1:{engine.server_address[1]}", version="1.41", timeout=10)
    yield made
    made.close()


def test_both_streams_in_their_order(engine: Engine, client: docker.APIClient) -> None:
    engine.pieces = iter([frame(b"out\n") + frame("é".encode(), 2)])
    assert read_output(client, "a name", 1000) == "out\né"
    assert engine.asked == "/v1.41/containers/a%20name/logs?stdout=1&stderr=1"


def test_a_container_that_is_gone(client: docker.APIClient) -> None:
    with pytest.raises(docker.errors.NotFound, match="No such container"):
        read_output(client, "x", 1000)


@pytest.mark.parametrize("length", [1 << 14, 0xFFFFFFFF], ids=["many frames", "one of 4 GB"])
def test_a_flood_takes_no_memory_and_is_said(
    engine: Engine, client: docker.APIClient, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("run_benchmarks.runtimes.docker.MAX_READ_BYTES", 64 << 20)
    one = bytes([1, 0, 0, 0]) + length.to_bytes(4, "big")
    filling = b"x" * (1 << 14)
    many = length == len(filling)
    engine.pieces = (one + filling if many or number == 0 else filling for number in range(1 << 20))
    tracemalloc.start()
    try:
        text = read_output(client, "x", 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert text.startswith("xxx") and text.endswith(f"xxx{NOT_READ}")
    assert "bytes are left out here" in text and len(text) < (1 << 20) + 200
