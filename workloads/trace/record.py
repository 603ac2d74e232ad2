"""Reads and writes recorded traces: what ranks of real frameworks sent, a line of JSON each, compressed.

A line is {"job": parameters, "versions": packages, "groups": {name: ranks}, "iterations": [[op, ...], ...]}; the first
iteration is the set-up. An op is [type, group, dtype, bytes, phase, wait - issue, module, micro_batch, peer, in_splits,
out_splits, kernel], without the Nones at its end; wait - issue is the overlap + 1, None if nothing waits.
"""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.whole_files import write_whole
from workloads.job.errors import WorkloadFileError
from workloads.rows.calls import Call
from workloads.rows.ops import NEVER, CommType
from workloads.rows.ranks import Ranks
from workloads.trace.job import TraceJob


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls of one rank of a job: `iterations[0]` is the set-up, the others follow."""

    job: TraceJob
    versions: dict[str, str]
    iterations: tuple[tuple[Call, ...], ...]

    @property
    def ops(self) -> list[Call]:
        """All ops in order."""
        return [op for ops in self.iterations for op in ops]

    def to_line(self) -> str:
        """The trace as one line of JSON."""
        groups = {op.group: str(op.ranks) for op in self.ops}
        record = {
            "job": self.job.to_dict(),
            "versions": self.versions,
            "groups": groups,
            "iterations": [[_cells(op) for op in ops] for ops in self.iterations],
        }
        return json.dumps(record, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str | bytes) -> "Trace":
        """The inverse of `to_line`.

        Raises:
            ValueError, KeyError, TypeError: the line is no trace.
        """
        return cls.from_record(json.loads(line))

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Trace":
        """From the line's object; raises as `from_line`."""
        groups = {name: Ranks.parse(text) for name, text in record["groups"].items()}
        iterations = tuple(tuple(_op(cells, groups) for cells in ops) for ops in record["iterations"])
        return cls(TraceJob.from_dict(record["job"]), dict(record["versions"]), iterations)


def _cells(op: Call) -> list[Any]:
    wait = None if op.overlap is None or op.overlap == NEVER else op.overlap + 1
    cells: list[Any] = [
        op.comm_type.name, op.group, op.dtype, op.bytes, op.phase, wait, op.module, op.micro_batch, op.peer,
        op.in_splits, op.out_splits, op.kernel or None,
    ]  # fmt: skip
    while cells[-1] is None:
        cells.pop()
    return cells


def _op(cells: list[Any], groups: dict[str, Ranks]) -> Call:
    cells = cells + [None] * (12 - len(cells))
    kind, group, dtype, size, phase, wait, module, micro_batch, peer, into, out, kernel = cells
    if wait is not None and wait < 1:
        raise ValueError(f"wait is {wait}, not after the call")
    return Call(
        comm_type=CommType[kind],
        group=group,
        ranks=groups[group],
        dtype=dtype,
        bytes=size,
        phase=phase,
        overlap=NEVER if wait is None else wait - 1,
        module=module or "",
        micro_batch=micro_batch,
        peer=peer,
        in_splits=None if into is None else tuple(into),
        out_splits=None if out is None else tuple(out),
        kernel=kernel or "",
    )


def save(traces: Iterable[Trace], path: Path) -> None:
    """Write traces, compressed; replaces the file."""
    text = "".join(f"{trace.to_line()}\n" for trace in traces).encode()
    packed = lzma.compress(text, preset=9)
    write_whole(path, [packed])


def load(path: Path) -> Iterator[Trace]:
    """Read traces one by one.

    Raises:
        WorkloadFileError: the file cannot be read or holds something else; the message names the line.
    """
    try:
        with lzma.open(path) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield Trace.from_line(line)
                except (ValueError, KeyError, TypeError) as error:
                    raise WorkloadFileError(path, number, f"is no recorded trace: {error}") from None
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise WorkloadFileError(path, None, str(error)) from None
