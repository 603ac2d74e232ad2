"""Keeps the beginning and the end of a host's output, up to a limit, with a note on what was left out between them."""

import re

MAX_CAPTURED_BYTES = 8 << 20
HEAD_PARTS = 4  # the beginning gets a quarter, the end the rest: it shows how a command ended
SLACK_BYTES = 1 << 16
LEFT_OUT = re.compile(r"^\[\.\.\. \d+ bytes are left out here \.\.\.\]$", re.MULTILINE)


class Capture:
    """Collects a stream of any length in about `limit` bytes, even if it arrives byte by byte."""

    def __init__(self, limit: int = MAX_CAPTURED_BYTES) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._head_limit = limit // HEAD_PARTS
        self._tail_limit = limit - self._head_limit
        self._left_out = 0

    def add(self, chunk: bytes) -> None:
        """Take the next piece."""
        fits = max(0, self._head_limit - len(self._head))
        self._head += chunk[:fits]
        self._tail += chunk[fits:]
        if len(self._tail) > self._tail_limit + SLACK_BYTES:
            self._cut()

    def _cut(self) -> None:
        excess = max(0, len(self._tail) - self._tail_limit)
        self._left_out += excess
        del self._tail[:excess]

    @property
    def left_out(self) -> int:
        """Number of bytes that `text` leaves out."""
        return self._left_out + max(0, len(self._tail) - self._tail_limit)

    def text(self) -> str:
        """The whole stream, or its beginning, a line with the number of missing bytes, and its end."""
        self._cut()
        gap = f"\n[... {self._left_out} bytes are left out here ...]\n".encode() if self._left_out else b""
        return b"".join((self._head, gap, self._tail)).decode("utf-8", errors="replace")
