"""Compares two workloads: rows and bytes by phase, group and type, and the first call that differs in each phase.

A spelling is no difference: all_gather and all_gather_into_tensor are one type. A property that one of two rows does
not state (AICB's rows have no dtype, ranks, splits or peer) is not compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from workloads.analysis.show import readable
from workloads.formats.workload import Total, Workload
from workloads.rows.blocks import Offset
from workloads.rows.calls import PHASES
from workloads.rows.collectives import CALLS
from workloads.rows.ops import CommType, LogItem

OPTIONAL = ("comm_group_size", "dtype", "ranks", "in_splits", "out_splits", "peer")
Key = tuple[str, str, str]
Placed = tuple[LogItem, Offset]
"""A stored row, and what its place adds to the numbers of its layer and micro-batch."""
NO_ROWS = Total(0, 0)


@dataclass(frozen=True, slots=True)
class CallMismatch:
    """The first call of a phase that differs. number: calls of the phase before it; None where a side has none left."""

    phase: str
    number: int
    first: LogItem | None
    second: LogItem | None

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of what differs; empty where a side has no call."""
        if self.first is None or self.second is None:
            return ()
        return tuple(_differing(self.first, self.second))


@dataclass(frozen=True, slots=True)
class WorkloadDiff:
    """The differences of two workloads. totals: rows and bytes of both, by phase, group and type.

    same: every call of both is equal, in the order of the whole workload, and so are the numbers of iterations.
    """

    iterations: tuple[int, int]
    totals: dict[Key, tuple[Total, Total]]
    mismatches: tuple[CallMismatch, ...]
    same: bool

    def to_dict(self) -> dict[str, Any]:
        """The comparison for programs; bytes are bytes."""
        return {
            "same": self.same,
            "iterations": list(self.iterations),
            "totals": [
                {"phase": phase, "group": group, "type": kind, "rows": [a.rows, b.rows], "bytes": [a.bytes, b.bytes]}
                for (phase, group, kind), (a, b) in self.totals.items()
            ],
            "first_differences": [
                {
                    "phase": each.phase,
                    "call": each.number,
                    "differing": list(each.differing),
                    "calls": [_facts(each.first), _facts(each.second)],
                }
                for each in self.mismatches
            ],
        }

    def lines(self) -> list[str]:
        """The comparison for people: a table, marked where the sides differ, and the first differences."""
        found = ["same" if self.same else "different", f"iterations: {self.iterations[0]} and {self.iterations[1]}"]
        cells = [("", "phase", "group", "type", "rows", "rows", "bytes", "bytes")]
        for (phase, group, kind), (a, b) in self.totals.items():
            mark = "" if a == b else "*"
            sizes = (readable(a.bytes), readable(b.bytes))
            cells.append((mark, phase, group, kind, str(a.rows), str(b.rows), *sizes))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            aligned = [
                cell.rjust(width) if at > 3 else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            found.append(" ".join(aligned).rstrip())
        for each in self.mismatches:
            what = f" ({', '.join(each.differing)})" if each.differing else ""
            found.append(f"{each.phase}: call {each.number} differs{what}")
            found += [f"  {side}: {_text(item)}" for side, item in (("A", each.first), ("B", each.second))]
        if not self.same and not self.mismatches:
            found.append("the calls of each phase are equal; the phases follow one another in another order")
        return found


def compare(first: Workload, second: Workload) -> WorkloadDiff:
    """Compare all rows that communicate, in time proportional to their number."""
    pairs = (first, second)
    totals = [_totals(workload) for workload in pairs]
    keys = sorted(set(totals[0]) | set(totals[1]), key=_order)
    phases = sorted({phase for phase, _, _ in keys}, key=_phase_order)
    found = [_first_mismatch(phase, _calls(first, phase), _calls(second, phase)) for phase in phases]
    mismatches = [mismatch for mismatch in found if mismatch is not None]
    iterations = (first.iterations, second.iterations)
    in_order = not mismatches and _first_mismatch("", _calls(first), _calls(second)) is None
    same = iterations[0] == iterations[1] and in_order
    both = {key: (totals[0].get(key, NO_ROWS), totals[1].get(key, NO_ROWS)) for key in keys}
    return WorkloadDiff(iterations, both, tuple(mismatches), same)


def phase_of(item: LogItem) -> str:
    """The phase that a row states, else the first word of its stage (AICB's forward_step is forward)."""
    return item.phase or item.stage.partition(".")[0].removesuffix("_step")


def _totals(workload: Workload) -> dict[Key, Total]:
    sums: dict[Key, Total] = {}
    for item, count in workload.rows.tally_kinds().items():
        if item.is_communication:
            key = (phase_of(item), _group(item), _type(item))
            known = sums.get(key, NO_ROWS)
            sums[key] = Total(known.rows + count, known.bytes + count * item.comm_bytes)
    return sums


def _calls(workload: Workload, phase: str | None = None) -> Iterator[Placed]:
    """The calls of a phase; without one all, and the ends of the epochs, which stand at their places on both sides."""
    wanted: dict[int, bool] = {}
    for item, offset in workload.rows.placed():
        take = wanted.get(id(item))
        if take is None:
            end = phase is None and item.comm_type is CommType.epoch_end
            take = end or (item.is_communication and phase in (None, phase_of(item)))
            wanted[id(item)] = take
        if take:
            yield item, offset


def _first_mismatch(phase: str, first: Iterator[Placed], second: Iterator[Placed]) -> CallMismatch | None:
    equal: set[tuple[int, int]] = set()
    for number, (a, b) in enumerate(zip_longest(first, second)):
        if a is not None and b is not None:
            pair = (id(a[0]), id(b[0]))
            if pair in equal:
                continue
            if not any(_differing(a[0], b[0])):
                equal.add(pair)
                continue
        return CallMismatch(phase, number, a and a[0].shifted(a[1]), b and b[0].shifted(b[1]))
    return None


def _differing(a: LogItem, b: LogItem) -> Iterator[str]:
    if _type(a) != _type(b):
        yield "type"
    if _group(a) != _group(b):
        yield "group"
    if a.comm_bytes != b.comm_bytes:
        yield "bytes"
    for name in OPTIONAL:
        one, other = getattr(a, name), getattr(b, name)
        if one != other and one is not None and other is not None:
            yield name


def _type(item: LogItem) -> str:
    return CALLS.get(item.comm_type.name, item.comm_type.name)


def _group(item: LogItem) -> str:
    return "" if item.comm_group is None else item.comm_group.name.removesuffix("_group")


def _phase_order(phase: str) -> tuple[int, str]:
    return (PHASES.index(phase) if phase in PHASES else len(PHASES)), phase


def _order(key: Key) -> tuple[tuple[int, str], str, str]:
    return _phase_order(key[0]), key[1], key[2]


def _facts(item: LogItem | None) -> dict[str, Any] | None:
    if item is None:
        return None
    ranks = None if item.ranks is None else str(item.ranks)
    facts = {"type": item.comm_type.name, "group": _group(item), "bytes": item.comm_bytes, "stage": item.stage}
    more = {
        "module": item.module, "micro_batch": item.micro_batch, "dtype": item.dtype, "ranks": ranks, "peer": item.peer,
    }  # fmt: skip
    return facts | {name: value for name, value in more.items() if value is not None}


def _text(item: LogItem | None) -> str:
    facts = _facts(item)
    if facts is None:
        return "no more calls"
    head = f"{facts.pop('type')} over {facts.pop('group') or 'no group'}, {facts.pop('bytes')} bytes"
    return ", ".join([head, *(f"{name} {value}" for name, value in facts.items() if value != "")])
