"""Finds with GNU grep where a large file has one of some words: in one pass, five times as fast as Python looks."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

# grep holds a whole line: at one of more than about half of this memory it gives up. Words come by stdin, unseen.
LIMITED = 'ulimit -v "$1" && exec grep -abioF -f - -- "$2"'
MEMORY_KILOBYTES = 1 << 17
ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"}
FOUND, FOUND_NONE = 0, 1


class Places:
    """The places in a file where a word begins, as grep prints them; `within` is called for one range of bytes after
    the other, from the beginning of the file to its end.
    """

    def __init__(self, process: subprocess.Popen[bytes], offsets: IO[bytes]) -> None:
        self._process, self._offsets = process, offsets
        self._last: int | None = None
        self._next = self._read()

    def within(self, first: int, end: int) -> bool | None:
        """Whether a word begins from `first` up to before `end`; None where grep gave up before it came there."""
        while self._next is not None and self._next < end:
            self._last, self._next = self._next, self._read()
        if self._last is not None and self._last >= first:
            return True
        return None if self._next is None and self._process.wait() not in (FOUND, FOUND_NONE) else False

    def _read(self) -> int | None:
        offset = self._offsets.readline().partition(b":")[0]
        return int(offset) if offset.isdigit() else None


@contextlib.contextmanager
def places(path: Path, words: Collection[bytes]) -> Iterator[Places | None]:
    """The places of these words, small letters or capitals of ASCII alike; None where there is no GNU grep."""
    if not _is_gnu():
        yield None
        return
    argv = ["sh", "-c", LIMITED, "sh", str(MEMORY_KILOBYTES), str(path.absolute())]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=quiet) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(b"\n".join(words))
                process.stdin.close()
            yield Places(process, process.stdout)
        finally:
            process.kill()


@functools.cache
def _is_gnu() -> bool:
    """Whether grep is GNU's: others know no offset of what matched, or mean another by it."""
    with contextlib.suppress(OSError):
        answer = subprocess.run(["grep", "--version"], env=ENVIRONMENT, capture_output=True, check=False)
        return b"GNU grep" in answer.stdout.partition(b"\n")[0]
    return False
