"""Masks secrets in the text files of a folder, piece by piece: a file may be of any size and may have no line ends."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from common.whole_files import write_durably
from protocol.masking import mask_output, may_mask, secret_spans, telling_words

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


BINARY_BYTES = 8192  # a file with a zero byte among these first bytes is no text
PIECE_BYTES = 1 << 20
MARGIN_BYTES = 1 << 16  # the longest secret that is masked anywhere in an endless line
MAX_STEPS = 64  # back over adjacent secrets
SEARCHED_BYTES = 4 << 20  # from this size on a file is searched by grep first, which takes milliseconds to start
SPACE = re.compile(rb"\s")


def mask_files(folder: Path, secrets: Collection[str]) -> dict[str, str]:
    """Mask secrets in every text file below `folder`; returns the sha256 by name of the files that had any.

    A file is replaced atomically, and only if that changes it. In a piece of a megabyte without white space, what
    follows `token=` is masked up to 64 kB.
    """
    masked = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        if digest := _mask_file(path, secrets):
            masked[path.relative_to(folder).as_posix()] = digest
    return masked


def _mask_file(path: Path, secrets: Collection[str]) -> str:
    """The sha256 of the file if it had a secret, else ""; what lies before the first secret is only copied."""
    known = [_encoded(secret) for secret in secrets]
    margin = max([MARGIN_BYTES, *(2 * len(secret) for secret in known)])
    with path.open("rb") as file, contextlib.ExitStack() as stack:
        if b"\0" in file.read(BINARY_BYTES):
            return ""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        words = [*known, *map(_encoded, telling_words())]
        found = stack.enter_context(places(path, words)) if size >= SEARCHED_BYTES else None
        pieces = _cut(file, known, margin)
        masked = _masked(pieces, known, secrets, found, margin)
        digest, before = hashlib.sha256(), 0
        for piece, is_new in masked:
            if is_new:
                rest = (each for each, _ in masked)
                write_durably(path, _digested(chain(_beginning(path, before), [piece], rest), digest))
                return digest.hexdigest()
            before += len(piece)
    return ""


def _beginning(path: Path, count: int) -> Iterator[bytes]:
    """The first `count` bytes of a file, in pieces."""
    with path.open("rb") as file:
        while piece := file.read(min(PIECE_BYTES, count)):
            count -= len(piece)
            yield piece


def _digested(pieces: Iterable[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for piece in pieces:
        digest.update(piece)
        yield piece


def _masked(
    pieces: Iterable[bytes], known: Collection[bytes], secrets: Collection[str], found: Places | None, margin: int
) -> Iterator[tuple[bytes, bool]]:
    """Each piece with what `mask_output` finds in it masked, and whether that changed it.

    `known` are the secrets in bytes; `found` are the places that a piece may need it for, also in the `margin` before.
    """
    begin = 0
    for piece in pieces:
        end = begin + len(piece)
        is_suspect = found.within(begin - margin, end) if found else None
        if is_suspect is False or not may_mask(piece, known):  # as most pieces: they need not become text
            yield piece, False
        else:
            new = _encoded(mask_output(piece.decode("utf-8", "surrogateescape"), secrets))
            yield new, new != piece
        begin = end


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _cut(file: IO[bytes], secrets: Collection[bytes], margin: int) -> Iterator[bytes]:
    rest = b""
    while chunk := file.read(PIECE_BYTES):
        text = rest + chunk
        at = text.rfind(b"\n") + 1 or _place_between(text, secrets, margin)
        yield text[:at]
        rest = text[at:]
    yield rest


def _place_between(line: bytes, secrets: Collection[bytes], margin: int) -> int:
    """Where to cut a line without end: about `margin` bytes before its end, outside any secret; 0 for not yet."""
    latest = len(line) - margin
    if latest <= 0:
        return 0
    spaces = [match.end() for match in SPACE.finditer(line, max(0, latest - margin), latest)]
    at = spaces[-1] if spaces else latest
    for _ in range(MAX_STEPS):
        start = _start_of_secret(line, at, secrets, margin)
        if start is None:
            return at
        at = start
    return latest


def _start_of_secret(line: bytes, at: int, secrets: Collection[bytes], margin: int) -> int | None:
    """The start of a secret that a cut at `at` would split; None if it splits none."""
    starts = []
    for secret in secrets:
        found = line.find(secret, max(0, at - len(secret) + 1), at + len(secret) - 1)
        if found >= 0:
            starts.append(found)
    offset = max(0, at - margin)
    window = line[offset : at + margin]
    for secret in sorted(secrets, key=len, reverse=True):  # masked first: an assignment may begin where one ends
        window = window.replace(secret, b"*" * len(secret))
    text = window.decode("ascii", "replace")  # one character per byte
    spans = ((offset + start, offset + end) for start, end in secret_spans(text))
    starts += [start for start, end in spans if start < at < end]
    return min(starts, default=None)
