"""Merges the op logs of all ranks: which records are one collective, who arrived last, and what each time consists of.

A record's place is its class (type, group, size) and its number in the iteration among the records that may be one
operation with one of its class: those of its type, group and size; a send and its receive; exchanges, of which each
rank sends another size. Records of one operation have the same ranks and number. Of a record are told apart, in ns:

- gap: from the end of the program's wait for the operation before, also that of the iteration before, to this one's
  issue: the rank's own time;
- queued: what the rank waited for a CPU in a long gap, as far as the log says;
- wait: from its issue to the last rank's arrival, a consequence of others being late;
- common: what the fastest rank needed after the last arrival: the collective itself;
- own: what this rank needed longer than the fastest.

Clocks are brought to rank 0's; a constant error of theirs drops out where values are compared with their median.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from workloads.job.groups import STEPS
from workloads.oplog.file import Numbers, OpLog
from workloads.oplog.measured import executed_bytes
from workloads.rows.ops import EXCHANGES, CommGroup, CommType, LogItem

Flags: TypeAlias = NDArray[np.bool_]
_ENDS = (CommType.isend.name, CommType.irecv.name)


@dataclass(frozen=True, slots=True, order=True)
class OpClass:
    """Operations of one type, group and number of bytes that are sent (0 for a computation)."""

    comm_type: str
    group: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.comm_type} {self.group or 'no group'} {self.size_bytes} B"


@dataclass(frozen=True, slots=True)
class Merged:
    """All records of all ranks after the initialization, in columns of shape (records,); times in ns of rank 0's clock.

    op_class: index into `classes`. place: index of (class, number in the iteration). together: index of the collective;
    team: index into `teams`, the ranks of the record's collective. last: whether the rank was the last to arrive.
    """

    classes: list[OpClass]
    teams: list[tuple[int, ...]]
    ranks: list[int]
    rank: Numbers
    iteration: Numbers
    op_class: Numbers
    place: Numbers
    team: Numbers
    together: Numbers
    issue_ns: Numbers
    done_ns: Numbers
    gap_ns: Numbers
    queued_ns: Numbers
    common_ns: Numbers
    own_ns: Numbers
    last: Flags
    iteration_ns: dict[int, Numbers]

    def __len__(self) -> int:
        return len(self.rank)


def merge(logs: Sequence[OpLog]) -> Merged:
    """The logs of one run, of all its ranks or of some."""
    classes: dict[OpClass, int] = {}
    teams: dict[tuple[int, ...], int] = {}
    matches: dict[tuple[str, str, int], int] = {}
    columns = [_of_rank(log, classes, teams, matches) for log in logs]
    empty = np.empty(0, np.int64)
    rank, iteration, op_class, match, team, number, issue, done, gap, queued = (
        np.concatenate([each[name] for each in columns] or [empty])
        for name in ("rank", "iteration", "op_class", "match", "team", "number", "issue", "done", "gap", "queued")
    )
    place = index_of(op_class, number)
    together = index_of(iteration, team, match, number)
    common, own, last = _parts(together, issue, done)
    return Merged(
        list(classes), list(teams), [log.facts.rank for log in logs], rank, iteration, op_class, place, team, together,
        issue, done, gap, queued, common, own, last, {log.facts.rank: _iterations(log) for log in logs},
    )  # fmt: skip


def _match(each: OpClass) -> tuple[str, str, int]:
    """The properties that the classes of one operation's records share."""
    if each.comm_type in _ENDS:
        return "p2p", each.group, each.size_bytes
    return each.comm_type, each.group, 0 if CommType[each.comm_type] in EXCHANGES else each.size_bytes


def _of_rank(
    log: OpLog, classes: dict[OpClass, int], teams: dict[tuple[int, ...], int], matches: dict[tuple[str, str, int], int]
) -> dict[str, Numbers]:
    rows = log.rows()
    ends = np.array([row.comm_type is CommType.epoch_end for row in rows], dtype=np.bool_)
    chosen = (log.iteration > 0) & ~ends[log.op] if len(log) else np.zeros(0, np.bool_)
    used = {op: rows[op] for op in np.unique(log.op[chosen]).tolist()}
    class_of, match_of, team_of = (np.zeros(len(rows), np.int64) for _ in range(3))
    for op, row in used.items():
        group = row.comm_group.name if row.comm_group else ""
        made = OpClass(row.comm_type.name, group, executed_bytes(row, log.facts))
        class_of[op] = classes.setdefault(made, len(classes))
        match_of[op] = matches.setdefault(_match(made), len(matches))
        team_of[op] = teams.setdefault(_team(row, log), len(teams))
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((log.issue_ns[order], log.iteration[order]))]
    iteration, op = log.iteration[order], log.op[order]
    issue, done = log.on_rank_0(log.issue_ns[order]), log.on_rank_0(log.done_ns[order])
    op_class, match, team = class_of[op], match_of[op], team_of[op]
    begins = {int(each): int(start) for each, start in zip(*_epoch_starts(log, ends), strict=True)}
    ended = issue + log.exposed_ns[order]
    gap = issue - np.concatenate((issue[:1], ended[:-1]))
    for each in np.flatnonzero(np.diff(iteration, prepend=-1)).tolist():
        # What follows an iteration's last operation, as the loading of data, delays the next iteration's first.
        if not each or iteration[each - 1] + 1 != iteration[each]:
            gap[each] = issue[each] - begins.get(int(iteration[each]), int(issue[each]))
    return {
        "rank": np.full(len(order), log.facts.rank), "iteration": iteration, "op_class": op_class, "match": match,
        "team": team, "number": _numbers(iteration, match, team), "issue": issue, "done": done, "gap": gap,
        "queued": np.zeros(len(order), np.int64) if log.queued_ns is None else log.queued_ns[order],
    }  # fmt: skip


def _epoch_starts(log: OpLog, ends: Flags) -> tuple[Numbers, Numbers]:
    closing = np.flatnonzero(ends[log.op]) if len(log) else np.empty(0, np.int64)
    return log.iteration[closing], log.on_rank_0(log.issue_ns[closing])


def _iterations(log: OpLog) -> Numbers:
    """Iteration and its ns, shape (2, iterations): by its epoch end, else from the first issue to the last end."""
    rows = log.rows()
    ends = np.array([row.comm_type is CommType.epoch_end for row in rows], dtype=np.bool_)
    closing = np.flatnonzero(ends[log.op] & (log.iteration > 0)) if len(log) else np.empty(0, np.int64)
    if len(closing):
        return np.stack((log.iteration[closing], log.duration_ns[closing]))
    found = np.unique(log.iteration[log.iteration > 0])
    spans = [log.done_ns[log.iteration == each].max() - log.issue_ns[log.iteration == each].min() for each in found]
    return np.stack((found, np.array(spans, dtype=np.int64)))


def _team(row: LogItem, log: OpLog) -> tuple[int, ...]:
    """Global ranks of a row's operation, both ends of a send or receive; this rank alone where nothing says them."""
    rank, groups = log.facts.rank, log.facts.groups
    if row.comm_type in (CommType.isend, CommType.irecv):
        peer = row.peer if row.peer is not None else _neighbour(row.additional, rank, groups.get("pp_group", []))
        if peer is None:
            return (rank,)
        return (rank, peer) if row.comm_type is CommType.isend else (peer, rank)
    if row.ranks is not None:
        return tuple(row.ranks)
    if row.comm_group is None:
        return (rank,)
    named = groups.get(row.comm_group.name)
    if named is None and row.comm_group is CommGroup.all:
        return tuple(range(log.facts.world_size))
    return tuple(named or (rank,))


def _neighbour(additional: str, rank: int, line: list[int]) -> int | None:
    step = STEPS.get(additional)
    return None if step is None or rank not in line else line[(line.index(rank) + step) % len(line)]


def _numbers(*keys: Numbers) -> Numbers:
    """How many earlier records have the same keys, shape (records,)."""
    key = index_of(*keys)
    order = np.argsort(key, kind="stable")
    counts = np.bincount(key) if len(key) else np.empty(0, np.int64)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    numbers = np.empty(len(key), np.int64)
    numbers[order] = np.arange(len(key)) - starts
    return numbers


def index_of(*keys: Numbers) -> Numbers:
    """One number for each combination of keys, from 0 without holes, shape (records,)."""
    combined = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        _, small = np.unique(key, return_inverse=True)
        _, combined = np.unique(combined * (int(small.max(initial=0)) + 1) + small, return_inverse=True)
    return combined.astype(np.int64)


def _parts(together: Numbers, issue: Numbers, done: Numbers) -> tuple[Numbers, Numbers, Flags]:
    """common and own in ns, and who was last, shape (records,) each."""
    if not len(together):
        return issue, issue, np.zeros(0, np.bool_)
    order = np.argsort(together, kind="stable")
    counts = np.bincount(together)
    starts = np.cumsum(counts) - counts
    arrival = np.maximum.reduceat(issue[order], starts)[together]
    wait = np.clip(arrival - issue, 0, done - issue)
    rest = done - issue - wait
    common = np.minimum.reduceat(rest[order], starts)[together]
    return common, rest - common, (issue == arrival) & (counts[together] > 1)
