"""A workload: the rows of one rank from initialization to the last iteration, and the parameters it was made from."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workloads.formats import csvfile
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import CommType, LogItem


@dataclass(frozen=True, slots=True)
class Total:
    """Rows and bytes of one kind of communication."""

    rows: int
    bytes: int | float


class Workload:
    """Rows with their repetitions. Epoch 0 is the initialization, epoch n the n-th iteration, as in AICB.

    Iterating yields `LogItem`s; `len` is the number of rows; neither `epoch` nor the totals copy rows.
    """

    def __init__(self, rows: "Iterable[LogItem | Block[LogItem]]", args: WorkloadArgs | None = None) -> None:
        """From rows and blocks of rows, in order; `args` are the parameters that they were made from, if any."""
        self.rows = rows if isinstance(rows, Block) else Block(rows)
        self.args = args

    def __len__(self) -> int:
        return len(self.rows)

    def __add__(self, other: "Workload") -> "Workload":
        """These rows, then the other's; the parameters are kept if both have the same."""
        return Workload([self.rows, other.rows], self.args if self.args == other.args else None)

    def __iter__(self) -> Iterator[LogItem]:
        return iter(self.rows)

    @property
    def iterations(self) -> int:
        """Number of iterations after the initialization."""
        return max(0, _ends(self.rows) - 1)

    def epoch(self, number: int) -> "Workload":
        """The rows of one epoch with its closing row.

        Raises:
            IndexError: there is no such epoch.
        """
        return self.epochs(number, number + 1)

    def epochs(self, start: int, stop: int) -> "Workload":
        """The rows of the epochs start <= n < stop.

        Raises:
            IndexError: a number is outside 0 .. iterations + 1.
        """
        if not 0 <= start <= stop <= self.iterations + 1:
            raise IndexError(f"epochs {start}:{stop} are not within 0:{self.iterations + 1}")
        return Workload(_cut(self.rows, start, stop), self.args)

    def tally(self) -> Counter[LogItem]:
        """Number of occurrences of each distinct row."""
        return self.rows.tally()

    def totals(self, *by: str) -> dict[tuple[str, ...], Total]:
        """Rows and bytes of the communication rows by any of comm_type, comm_group, stage (its first word: phase).

        The largest is first.

        Raises:
            ValueError: the key is none of these.
        """
        unknown = sorted(set(by) - set(_KEYS))
        if unknown:
            raise ValueError(f"cannot total by {', '.join(unknown)}; there is {', '.join(_KEYS)}")
        sums: dict[tuple[str, ...], tuple[int, int | float]] = {}
        for item, count in self.rows.tally_kinds().items():
            if item.is_communication:
                key = tuple(_KEYS[name](item) for name in by)
                rows, size = sums.get(key, (0, 0))
                sums[key] = rows + count, size + count * item.comm_bytes
        ordered = sorted(sums.items(), key=lambda entry: (-entry[1][1], entry[0]))
        return {key: Total(rows, size) for key, (rows, size) in ordered}

    @property
    def total_bytes(self) -> int | float:
        """Bytes of all communication rows (full tensors, as in msg_size)."""
        return sum(count * item.comm_bytes for item, count in self.rows.tally_kinds().items())

    def save(self, path: Path | str, form: str | None = None) -> int:
        """Write the CSV and, beside it, the parameters. Returns the bytes of the CSV.

        form: `aicb` or `full`; None is AICB's for rows that have a place in it.

        Raises:
            ValueError: a row has no place in the form.
        """
        return csvfile.save(self.rows, self.args, Path(path), form)

    @classmethod
    def load(cls, path: Path | str, stage: int | None = None) -> "tuple[Workload, WorkloadArgs | None]":
        """Reads a workload CSV, ours or AICB's. Returns it with its parameters, None where no record of them exists.

        stage: the section of a file that has one for each pipeline stage; None is the first, and a note says so.

        Raises:
            WorkloadFileError: the file is malformed; the message names file, line and column.
        """
        rows, args = csvfile.load(Path(path), stage)
        return cls(rows, args), args


_KEYS: dict[str, Callable[[LogItem], str]] = {
    "comm_type": lambda item: item.comm_type.name,
    "comm_group": lambda item: "" if item.comm_group is None else item.comm_group.name,
    "stage": lambda item: item.stage,
    "phase": lambda item: item.stage.partition(".")[0],
}


def _is_end(item: LogItem) -> bool:
    return item.comm_type is CommType.epoch_end


def _ends(rows: Block[LogItem]) -> int:
    return rows.count_where(_is_end)


def _cut(rows: Block[LogItem], start: int, stop: int) -> Block[LogItem]:
    """The rows in which at least `start` and fewer than `stop` epochs have ended before them."""
    once = _ends(Block(rows.parts))
    if once == 0:
        return rows if start <= 0 < stop else Block()
    if once == 1 and _closes(rows):
        return rows.repetitions(start, stop)
    pieces: list[LogItem | Block[LogItem]] = []
    passed = 0
    for number in range(rows.repeat):
        for part in rows.repetitions(number, number + 1).parts:
            if isinstance(part, Block):
                pieces.append(_cut(part, start - passed, stop - passed))
                passed += _ends(part)
            else:
                if start <= passed < stop:
                    pieces.append(part)
                passed += _is_end(part)
    return Block(pieces)


def _closes(rows: Block[LogItem]) -> bool:
    last = rows.parts[-1]
    return _closes(last) if isinstance(last, Block) else _is_end(last)
