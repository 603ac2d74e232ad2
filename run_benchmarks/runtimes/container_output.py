"""Reads a container's output from its engine's log: as a stream, its beginning and its end within a limit."""

import contextlib
import time
from collections.abc import Iterator
from urllib.parse import quote

import docker
import docker.errors
import requests

from run_benchmarks.hosts.docker_client import BoundedAPIClient
from run_benchmarks.hosts.incoming.capture import Capture

CHUNK = 1 << 16
FRAME_HEADER = 8  # stream, three zeros, four bytes of length
MAX_READ_BYTES = 1 << 30
READ_SECONDS, LAST_SECONDS = 120.0, 10.0  # for all of it; before its end, what has arrived is taken
BOTH = {"stdout": "1", "stderr": "1"}
NOT_READ = "\n[... the engine has more than was read ...]\n"


class Frames:
    """The contents of an engine's stream of frames, which arrive cut anywhere; none is kept whole."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0

    def contents(self, chunk: bytes) -> Iterator[bytes]:
        """The contents in the next piece of the stream."""
        view = memoryview(chunk)
        while len(view):
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                yield bytes(piece)
            else:
                missing = FRAME_HEADER - len(self._header)
                self._header += view[:missing]
                view = view[missing:]
                if len(self._header) == FRAME_HEADER:
                    self._left = int.from_bytes(self._header[4:], "big")
                    self._header.clear()


def read_output(client: docker.APIClient, container: str, limit: int) -> str:
    """stdout and stderr of a container without a terminal, in about `limit` bytes, with a note on what is left out.

    Raises:
        docker.errors.APIError: the engine refuses, for example because the container is gone.
    """
    # The SDK's own `logs` keeps frames of any length whole.
    url = f"{client.base_url}/v{client.api_version}/containers/{quote(container, safe='')}/logs"
    total = client.total(READ_SECONDS) if isinstance(client, BoundedAPIClient) else contextlib.nullcontext()
    with total, client.get(url, params=BOTH, stream=True, timeout=client.timeout) as response:
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            raise docker.errors.create_api_error_from_http_exception(error) from error  # it raises it itself
        return _kept(response, limit)


def _kept(response: requests.Response, limit: int) -> str:
    kept, frames = Capture(limit), Frames()
    until, read = time.monotonic() + READ_SECONDS - LAST_SECONDS, 0
    for chunk in response.iter_content(CHUNK):
        for piece in frames.contents(chunk):
            kept.add(piece)
        read += len(chunk)
        if read > MAX_READ_BYTES or time.monotonic() > until:
            return kept.text() + NOT_READ
    return kept.text()
