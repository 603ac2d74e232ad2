"""Defines the facts of one rank's op log: who executed the operations, how they were timed, whose clock it is."""

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

from workloads.rows.ops import CommGroup

Mode: TypeAlias = Literal["each", "stream", "replay"]
MODES: Final[tuple[Mode, ...]] = ("each", "stream", "replay")
MOST_RANKS = 1 << 20
MOST_RECORDS = 1 << 24
"""Records of one file, and rows of its workload or of a log; more is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """Facts that hold for all operations of one rank's log.

    stage: this rank's pipeline stage. mode: how operations were timed: `each` synchronised, `stream` as a job issues
    them, `replay` with computation between. scale: factor of the executed sizes over the workload's, as 1 or 1/64.
    clock_offset_ns: to be added to this rank's clock to have rank 0's; clock_error_ns: the most by which that is wrong.
    wall_ns: Unix time in ns when this rank's clock read 0. groups: global ranks of each group that this rank is in, by
    the name of the CommGroup (tp_group, ..., all).
    """

    rank: int
    world_size: int
    mode: str
    stage: int = 0
    backend: str = ""
    device: str = ""
    frame: str = ""
    scale: str = "1"
    clock_offset_ns: int = 0
    clock_error_ns: int = 0
    wall_ns: int = 0
    workload_sha256: str = ""
    groups: dict[str, list[int]] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Mistakes in the values, in words; empty where nothing is."""
        found = [
            f"{each.name} is {getattr(self, each.name)!r}, not {_KINDS[each.name][1]}"
            for each in fields(self)
            if not _KINDS[each.name][0](getattr(self, each.name))
        ]
        if not found and not self.rank < self.world_size:
            found.append(f"rank is {self.rank} of world_size {self.world_size}")
        for name, ranks in self.groups.items() if not found else ():
            if self.rank not in ranks or max(ranks) >= self.world_size or len(set(ranks)) != len(ranks):
                found.append(f"{name} is {ranks[:8]}, not different ranks of {self.world_size} with {self.rank} in it")
        return found


def _is_whole(value: object, least: int = 0, most: int = 1 << 62) -> bool:
    return type(value) is int and least <= value <= most


def _is_scale(value: object) -> bool:
    over, _, under = value.partition("/") if isinstance(value, str) else ("", "", "")
    digits = over.isascii() and over.isdecimal() and under.isascii() and (under.isdecimal() or not under)
    return digits and len(over) + len(under) < 20 and int(over) > 0 and int(under or 1) > 0


def _are_groups(value: object) -> bool:
    return isinstance(value, dict) and all(
        name in CommGroup.__members__
        and isinstance(ranks, list)
        and 0 < len(ranks) <= MOST_RANKS
        and all(_is_whole(rank, 0, MOST_RANKS) for rank in ranks)
        for name, ranks in value.items()
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 1000 and value.isprintable()


_KINDS: dict[str, tuple[Any, str]] = {
    "rank": (_is_whole, "0 or more"),
    "world_size": (lambda value: _is_whole(value, 1, MOST_RANKS), f"1 to {MOST_RANKS}"),
    "mode": (lambda value: value in MODES, f"one of {', '.join(MODES)}"),
    "stage": (_is_whole, "0 or more"),
    "clock_offset_ns": (lambda value: _is_whole(value, -(1 << 62)), "a number of ns"),
    "clock_error_ns": (_is_whole, "a number of ns from 0 on"),
    "wall_ns": (lambda value: _is_whole(value, -(1 << 62)), "a number of ns"),
    "scale": (_is_scale, "a number like 1 or 1/64"),
    "groups": (_are_groups, "the ranks of each group by its name"),
    **dict.fromkeys(("backend", "device", "frame", "workload_sha256"), (_is_text, "one line of text")),
}
