"""Brings beginning and end of a log of which a limit of the collection left the beginning only, or nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from run_benchmarks.errors import CollectError
from run_benchmarks.hosts.base import Host

HEAD_BYTES, TAIL_BYTES = 128 << 10, 512 << 10
SECONDS = 60.0
FILE_MODE = 0o640
# Arguments: the log, bytes of its beginning and of its end. Prints its size, then both, or all of a shorter log.
ENDS = """
size=$(stat -c %s -- "$1") || exit
echo "$size"
[ "$size" -gt "$(($2 + $3))" ] || exec cat -- "$1"
head -c "$2" -- "$1"
tail -c "$3" -- "$1"
"""


def bring_ends(host: Host, source: str, file: Path) -> str:
    """Replace what is here of a log, `file`, by its beginning, a line with the number of missing bytes, and its end.

    What is here already stays as the beginning, as far as it is a longer one. Both parts are cut at the ends of lines.

    Returns:
        the sha256 of what is kept.

    Raises:
        HostError: the host does not answer, or the log cannot be read there.
        CollectError: it cannot be kept here.
    """
    came = bytearray()
    words = ["sh", "-c", ENDS, "sh", f"{source}/{file.name}", str(HEAD_BYTES), str(TAIL_BYTES)]
    limit = HEAD_BYTES + TAIL_BYTES + len(str(1 << 64))

    def take(chunk: bytes) -> None:
        came.extend(chunk[: limit - len(came)])

    host.run(words, deadline=SECONDS, on_stdout=take)
    said, _, rest = bytes(came).partition(b"\n")
    size = int(said) if said.isdigit() else 0
    head, tail = rest[:HEAD_BYTES], rest[HEAD_BYTES:]
    tail = tail if len(rest) == size else tail[tail.find(b"\n") + 1 :]
    try:
        return _write(file, size, head, tail)
    except OSError as error:
        raise CollectError(host.name, f"the end of {file.name} cannot be kept on the head node: {error}") from error


def _write(file: Path, size: int, head: bytes, tail: bytes) -> str:
    with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE), "r+b") as log:
        there = log.seek(0, os.SEEK_END)
        if there <= len(head) or len(head) + len(tail) == size:
            log.seek(0)
            there = log.write(head)
        keep = min(there, max(len(head), there - len(tail)))
        missing = max(0, size - keep - len(tail))
        if missing:
            keep = _line_end(log, keep)
        log.seek(keep)
        log.truncate()
        log.write(b"[... %d bytes are left out here ...]\n" % max(0, size - keep - len(tail)) if missing else b"")
        log.write(tail)
        log.seek(0)
        return hashlib.file_digest(log, "sha256").hexdigest()


def _line_end(log: IO[bytes], before: int) -> int:
    """The end of the last line among the first `before` bytes; `before` if none of the last of them ends a line."""
    start = max(0, before - HEAD_BYTES)
    log.seek(start)
    place = log.read(before - start).rfind(b"\n")
    return before if place < 0 else start + place + 1
