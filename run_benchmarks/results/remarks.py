"""Defines the remarks on what disturbed a round, and how they are told: one line for each host and kind."""

from collections.abc import Iterable

from pydantic import BaseModel

TOLD, TOLD_CHARACTERS = 3, 300  # details in a line; characters of each


class Remark(BaseModel, extra="forbid"):
    """One disturbance of a round, certain or possible; times are the head node's epoch ms, None if unknown."""

    kind: str
    host: str | None
    detail: str
    from_ms: int | None = None
    to_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.host}: {self.kind}: {self.detail}" if self.host else f"{self.kind}: {self.detail}"


class Integrity(BaseModel, extra="forbid"):
    """The disturbances of a round. `unwatched`: what could not be observed, and why."""

    remarks: list[Remark] = []
    unwatched: list[str] = []


def in_lines(remarks: Iterable[Remark]) -> list[Remark]:
    """One remark for each host and kind, in the order of their first ones, with the first details and the whole time.

    What is left out of a line is counted in it: results are not drowned, and nothing is cut in silence.
    """
    groups: dict[tuple[str | None, str], list[Remark]] = {}
    for remark in remarks:
        groups.setdefault((remark.host, remark.kind), []).append(remark)
    return [_line(group) for group in groups.values()]


def _line(group: list[Remark]) -> Remark:
    details = [_cut(remark.detail) for remark in group[:TOLD]]
    more = [f"and {len(group) - TOLD} more, in round.json"] if len(group) > TOLD else []
    begins = [remark.from_ms for remark in group if remark.from_ms is not None]
    ends = [remark.to_ms for remark in group if remark.to_ms is not None]
    times = {"from_ms": min(begins, default=None), "to_ms": max(ends, default=None)}
    return group[0].model_copy(update={"detail": "; ".join([*details, *more]), **times})


def _cut(detail: str) -> str:
    beyond = len(detail) - TOLD_CHARACTERS
    return detail if beyond <= 0 else f"{detail[:TOLD_CHARACTERS]}... ({beyond} more characters in round.json)"
