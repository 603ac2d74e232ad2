"""Reads PerfLog lines, from a file of many gigabytes or from a log that grows.

Only possible records are kept, up to a limit each: other output costs one search for the prefix, whatever its lines.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pydantic import ValidationError

from protocol import safe_json
from protocol.perflog.record import PREFIX, PerfLogError, PerfLogRecord
from protocol.safe_json import MAX_BYTES

CHUNK_BYTES = 1 << 20
_MARK = PREFIX.encode()
_OPENING = b"{"
_SHOWN_CHARACTERS = 200  # of a line that is wrong


def parse_line(line: str) -> PerfLogRecord | None:
    """The record of one line of a rank's log, or None for ordinary output.

    Text before the prefix on the same line, as of a progress bar, is no mistake. safe_json reads the JSON.

    Raises:
        PerfLogError: the prefix is there and no valid record follows; the message holds the line's beginning.
    """
    start = 0 if line.startswith(PREFIX) else line.find(PREFIX + "{")
    if start < 0:
        return None
    text = line[start + len(PREFIX) :].strip()
    try:
        return PerfLogRecord.model_validate(safe_json.load(text))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'line'}: {e['msg']}" for e in error.errors())
        raise PerfLogError(f"not a PerfLog record: {wrong}: {text[:_SHOWN_CHARACTERS]!r}") from error
    except safe_json.UnsafeJsonError as error:
        raise PerfLogError(f"not a PerfLog record: {error}: {text[:_SHOWN_CHARACTERS]!r}") from error


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line from its PerfLog prefix on, without its end; `cut_bytes` bytes beyond the limit were dropped."""

    data: bytes
    cut_bytes: int = 0

    @property
    def text(self) -> str:
        """The line as text."""
        return self.data.decode("utf-8", errors="replace")


class LineFinder:
    """Takes a log in pieces, cut anywhere, and returns its PerfLog lines (those that parse_line accepts).

    Time is linear in the bytes taken; at most `max_bytes` of a line, from its prefix on, are kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES + len(_MARK)) -> None:
        self._max_bytes = max_bytes
        self._held = b""  # end of an ordinary line that may begin a prefix
        self._at_line_start = True  # whether what is held, or comes next, begins a line
        self._record: bytearray | None = None
        self._cut = 0

    def feed(self, chunk: bytes) -> Iterator[FoundLine]:
        """The PerfLog lines that end in this piece. Exhaust the iterator before the next piece is fed."""
        data, start = self._held + chunk, 0
        self._held = b""
        while True:
            if self._record is None:
                start = self._search(data, start)
                if self._record is None:
                    return
            end = data.find(b"\n", start)
            self._keep(data, start, len(data) if end < 0 else end)
            if end < 0:
                return
            yield FoundLine(bytes(self._record), self._cut)
            self._record, self._cut, self._at_line_start = None, 0, True
            start = end + 1

    def rest(self) -> FoundLine | None:
        """At the end of the log: its last line if that has no line end and holds the prefix or a part of it."""
        if self._record is not None:
            return FoundLine(bytes(self._record), self._cut)
        last = self._held.rpartition(b"\n")[2]
        place = last.find(_MARK.strip())
        return FoundLine(last[place:]) if place >= 0 else None

    def _search(self, data: bytes, start: int) -> int:
        """Position where a record begins, kept from there on; without one, the end that may begin one is held."""
        place = data.find(_MARK, start)
        while place >= 0:
            after = data[place + len(_MARK) : place + len(_MARK) + 1]
            if after == _OPENING or self._begins_line(data, start, place):
                self._record = bytearray()
                return place
            if not after:
                break
            place = data.find(_MARK, place + 1)
        keep = max(start, len(data) - len(_MARK))
        self._at_line_start = self._begins_line(data, start, keep)
        self._held = data[keep:]
        return keep

    def _begins_line(self, data: bytes, start: int, place: int) -> bool:
        """Whether `place` begins a line; for `start` that is known."""
        return self._at_line_start if place == start else data[place - 1 : place] == b"\n"

    def _keep(self, data: bytes, start: int, end: int) -> None:
        assert self._record is not None
        room = self._max_bytes - len(self._record)
        self._record += data[start : min(end, start + room)]
        self._cut += max(0, end - start - room)


def find_lines(file: BinaryIO, finder: LineFinder) -> Iterator[FoundLine]:
    """The PerfLog lines of an open file, from its position to its end; `finder` holds the rest afterwards."""
    while chunk := file.read(CHUNK_BYTES):
        yield from finder.feed(chunk)
