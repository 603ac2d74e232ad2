"""Reads and writes the second form of a workload CSV: AICB's columns, then those of real frameworks, and repetitions.

A row stands once for all its repetitions. The column `repeat` opens blocks before its row (`8[`, or `8:1:0[` where each
repetition adds 1 to the layer and 0 to the micro-batch) and closes them after it (`]`). Empty cells say nothing.
"""

import re
from collections.abc import Iterator

from workloads.rows.blocks import NOTHING, Block, Offset
from workloads.rows.ops import AICB_GROUPS, AICB_TYPES, COLUMNS, HEADER, NEVER, LogItem, printable
from workloads.rows.ranks import Ranks, parse_splits, split_module, splits_text

MORE_COLUMNS = (
    "dtype", "ranks", "in_splits", "out_splits", "peer", "module", "micro_batch", "phase", "overlap", "repeat",
)  # fmt: skip
FULL_HEADER = f"{HEADER},{','.join(MORE_COLUMNS)}"
DEEPEST = 50
"""Blocks within blocks that a file may have; folding makes one a level of repetition."""
MOST_ROWS = 10**12
"""Rows of a file, repetitions included; more is a mistake."""
_REPEAT = re.compile(r"((?:[0-9]{1,13}(?::-?[0-9]{1,9}:-?[0-9]{1,9})?\[)*)(\]*)")
_OPEN = re.compile(r"([0-9]+)(?::(-?[0-9]+):(-?[0-9]+))?\[")
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def is_full(rows: Block[LogItem]) -> bool:
    """Whether the rows can be written in this form alone: something in them has no place in AICB's columns."""
    return rows.advance != NOTHING or any(
        is_full(part) if isinstance(part, Block) else _row_is_full(part) for part in rows.parts
    )


def _row_is_full(item: LogItem) -> bool:
    return (
        any(value is not None for value in _more(item))
        or item.comm_type not in AICB_TYPES
        or (item.comm_group is not None and item.comm_group not in AICB_GROUPS)
    )


def lines(rows: Block[LogItem]) -> Iterator[str]:
    """The lines of the file after its header, in time proportional to the stored rows.

    Raises:
        ValueError: a text of a row has a comma or a line end, and so no place in a CSV.
    """
    yield from _lines(rows, "", "")


def check(rows: Block[LogItem]) -> None:
    """Check that a file of rows, which came from elsewhere, would be read back as they are.

    Raises:
        ValueError: a row has no place in a CSV, or a value that no reader takes.
    """
    for item in rows.tally_kinds():
        line = f"{item.to_csv()},{_more_text(item)}"
        if _parse(line) != item:
            raise ValueError(f"a row would be read as another one: {line[:200]!r}")


def _lines(block: Block[LogItem], opens: str, closes: str) -> Iterator[str]:
    if not len(block):
        return
    if block.repeat > 1:
        step = "" if block.advance == NOTHING else f":{block.advance[0]}:{block.advance[1]}"
        opens, closes = f"{opens}{block.repeat}{step}[", f"]{closes}"
    last = len(block.parts) - 1
    for number, part in enumerate(block.parts):
        before, after = opens if number == 0 else "", closes if number == last else ""
        if isinstance(part, Block):
            yield from _lines(part, before, after)
        else:
            yield f"{part.to_csv()},{_more_text(part)},{before}{after}"


def _more(item: LogItem) -> tuple[object, ...]:
    return (
        item.dtype, item.ranks, item.in_splits, item.out_splits, item.peer, item.module, item.micro_batch, item.phase,
        item.overlap,
    )  # fmt: skip


def _more_text(item: LogItem) -> str:
    for name in ("stage", "additional", "dtype", "module", "phase"):
        text = getattr(item, name)
        if text is not None and (set(text) & set(",\r\n") or (text == "" and name in MORE_COLUMNS)):
            raise ValueError(f"{name} {text!r} has no place in a CSV: no commas or line ends, and None instead of ''")
    cells = (splits_text(value) if isinstance(value, tuple) else value for value in _more(item))
    return ",".join("" if value is None else str(value) for value in cells)


class Reader:
    """Builds the blocks from the lines after the header: `add` each, then `done`."""

    def __init__(self) -> None:
        self._open: list[tuple[list[LogItem | Block[LogItem]], int, Offset]] = [([], 1, NOTHING)]
        self._known: dict[str, LogItem] = {}

    def check(self, line: str) -> None:
        """Read one line on its own, whatever blocks are open.

        Raises:
            ValueError: a cell is wrong; the message names its column.
        """
        self._row(line)

    def _row(self, line: str) -> tuple[LogItem, re.Match[str]]:
        text, _, repeat = line.rpartition(",")
        item = self._known.get(text)
        if item is None:
            item = self._known[text] = _parse(text)
        marks = _REPEAT.fullmatch(repeat)
        if marks is None:
            raise ValueError(f"repeat is {repeat[:80]!r}, not opening 8[ or 8:1:0[ and closing ]")
        return item, marks

    def add(self, line: str) -> None:
        """One line without its end.

        Raises:
            ValueError: a cell is wrong; the message names its column.
        """
        item, marks = self._row(line)
        for times, layers, micro_batches in _OPEN.findall(marks[1]):
            self._open.append(([], int(times), (int(layers or 0), int(micro_batches or 0))))
        if len(self._open) > DEEPEST:
            raise ValueError(f"repeat opens more than {DEEPEST} blocks within one another")
        self._open[-1][0].append(item)
        for _ in marks[2]:
            if len(self._open) == 1:
                raise ValueError("repeat closes a block that is not open")
            parts, count, advance = self._open.pop()
            if not 1 <= count <= MOST_ROWS // sum(len(part) if isinstance(part, Block) else 1 for part in parts):
                raise ValueError(f"repeat makes no rows, or more than {MOST_ROWS}")
            self._open[-1][0].append(Block(parts, count, advance))

    def done(self) -> Block[LogItem]:
        """End the reading; returns all rows.

        Raises:
            ValueError: a block is still open, or takes a number below 0.
        """
        if len(self._open) > 1:
            raise ValueError(f"{len(self._open) - 1} blocks of the column repeat are not closed")
        rows = Block(self._open[0][0])
        _check_numbers(rows, 0, 0)
        return rows


def _check_numbers(block: Block[LogItem], layers: int, micro_batches: int) -> None:
    """Check the rows of a block whose numbers fall by so much at most before it."""
    layers += min(0, block.advance[0] * (block.repeat - 1))
    micro_batches += min(0, block.advance[1] * (block.repeat - 1))
    for part in block.parts:
        if isinstance(part, Block):
            _check_numbers(part, layers, micro_batches)
            continue
        found = split_module(part.module) if part.module else None
        if (found and found[1] + layers < 0) or (part.micro_batch is not None and part.micro_batch + micro_batches < 0):
            raise ValueError(f"repeat takes the layer or micro-batch of module {part.module!r} below 0")


def _parse(text: str) -> LogItem:
    cells = text.split(",")
    if len(cells) != len(COLUMNS) + len(MORE_COLUMNS) - 1:
        raise ValueError(f"{len(cells) + 1} columns where {len(COLUMNS) + len(MORE_COLUMNS)} are expected")
    base = LogItem.from_csv(",".join(cells[: len(COLUMNS)]))
    dtype, ranks, sent, received, peer, module, micro_batch, phase, overlap = cells[len(COLUMNS) :]
    distance = _whole(overlap, "overlap", NEVER)
    return LogItem(
        **{name: getattr(base, name) for name in _BASE_FIELDS},
        dtype=printable(dtype, "dtype") or None,
        ranks=Ranks.parse(ranks) if ranks else None,
        in_splits=parse_splits(sent) if sent else None,
        out_splits=parse_splits(received) if received else None,
        peer=_whole(peer, "peer", 0),
        module=printable(module, "module") or None,
        micro_batch=_whole(micro_batch, "micro_batch", 0),
        phase=printable(phase, "phase") or None,
        overlap=distance,
    )


_BASE_FIELDS = tuple(name.removeprefix("_") for name in COLUMNS)


def _whole(text: str, column: str, least: int) -> int | None:
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise ValueError(f"{column} is {text[:80]!r}, not a whole number from {least} on, or nothing")
    return int(text)
