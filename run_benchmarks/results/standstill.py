"""Names the rank that stalls an unfinished round: by its process, its collectives, and the call in which it waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.rank_states import STOPPED_STATES, RankState

STILL_SECONDS = 5.0  # two reports of a rank without a change, and some time on a busy host
SILENT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One rank at the end of a round: its launcher's state of it (None: no contact, or no record) at `written_ms`.

    `unrenewed_seconds`: for so long at least its launcher had not written when the round was ended.
    """

    host: str
    rank: int
    state: RankState | None
    written_ms: int | None
    clock_offset: float
    has_finished: bool
    last_event: str
    unrenewed_seconds: float = 0.0

    @property
    def name(self) -> str:
        """The rank and its host."""
        return f"rank {self.rank} on {self.host}"

    def moved_at(self) -> float:
        """The time of its last progress, in epoch seconds of the head node's clock."""
        return (self.state.moved_ms / 1000 if self.state else 0.0) - self.clock_offset

    def is_still(self) -> bool:
        """Whether it had made no progress for a while when its launcher last looked, or when it was ended."""
        still_ms = 0.0 if self.state is None else self._as_of_ms() - self.state.moved_ms
        return self.state is None or self.is_frozen() or still_ms > STILL_SECONDS * 1000

    def is_frozen(self) -> bool:
        """Whether its launcher, too, had stopped working, so that what is known of the rank is of before."""
        return self.unrenewed_seconds > SILENT_SECONDS

    def is_silent(self) -> bool:
        """Whether its reporting thread had stopped."""
        return self.state is not None and self._as_of_ms() - self.state.told_ms > SILENT_SECONDS * 1000

    def waits_in(self) -> str | None:
        """Where it waits for others: a function of torch.distributed, or a collective of torch's flight recorder.

        None if it does not wait, or is silent. On an accelerator the main thread runs ahead of the collectives that it
        has begun: there only the recorder tells.
        """
        if self.state is None or self.is_silent():
            return None
        return self.state.waits_in or next(iter(self.state.in_flight), None)

    def _as_of_ms(self) -> float:
        assert self.state is not None and self.written_ms is not None
        return self.written_ms if self.state.ended_us is None else min(self.written_ms, self.state.ended_us / 1000)

    def sentence(self) -> str:
        """All that is known about it, in one line."""
        if self.state is None:
            return f"{self.name}: its launcher did not report it, {self.last_event}"
        parts = [f"state {self.state.state}" if self.state.state else "no state"]
        parts.append(f"waits in {self.state.waits_in}" if self.state.waits_in else "in no collective")
        parts += [f"in flight: {', '.join(self.state.in_flight)}"] if self.state.in_flight else []
        parts += [f"{count} collectives of group {group}" for group, count in self.state.collectives.items()][:4]
        parts.append(f"no progress for {(self._as_of_ms() - self.state.moved_ms) / 1000:.1f} s")
        parts += [f"its launcher silent for {self.unrenewed_seconds:.1f} s since"] if self.is_frozen() else []
        return f"{self.name}: {', '.join(parts)}, {self.last_event}"


@dataclass(frozen=True, kw_only=True)
class StallCause:
    """The rank that hangs, and where; `rank` is None if it cannot be determined, and `message` says why."""

    rank: Standing | None
    message: str
    evidence: list[str]


def find_standing(standings: Sequence[Standing]) -> StallCause:
    """The rank for which the others wait. The first rule that separates some ranks from the others decides."""
    there = [rank for rank in standings if not rank.has_finished]
    evidence = [rank.sentence() for rank in there]
    known = [rank for rank in there if rank.state is not None]
    if not known:
        why = "no rank was left that had not finished" if not there else "no launcher reported its ranks"
        return StallCause(rank=None, message=why, evidence=evidence)
    if not any(rank.is_still() for rank in there) and not any(map(_is_stopped, known)):
        return StallCause(rank=None, message="every rank was still progressing", evidence=evidence)
    for rule in _RULES:
        if suspects := rule(there):
            return _cause(rule, suspects, there)
    return StallCause(rank=None, message=_undecided(there), evidence=evidence)


def _cause(rule: _Rule, suspects: Sequence[Standing], there: Sequence[Standing]) -> StallCause:
    """The suspect that moved no more before all others."""
    first = min(suspects, key=lambda rank: rank.moved_at())
    more = [rank.name for rank in suspects if rank is not first]
    message = f"hangs: {_why(rule, first, there)}" + (f"; so do {', '.join(more[:4])}" if more else "")
    ordered = [first.sentence(), *(rank.sentence() for rank in there if rank is not first)]
    return StallCause(rank=first, message=message, evidence=ordered)


def _is_stopped(rank: Standing) -> bool:
    return rank.state is not None and rank.state.state in STOPPED_STATES


def _stopped(there: Sequence[Standing]) -> list[Standing]:
    return [rank for rank in there if _is_stopped(rank)]


def _frozen(there: Sequence[Standing]) -> list[Standing]:
    """Ranks whose launchers no longer work, while others do: what was last known of them is of no use."""
    found = [rank for rank in there if rank.is_frozen()]
    return found if len(found) < len(there) else []


def _unheard(there: Sequence[Standing]) -> list[Standing]:
    """Ranks that have not begun, while others have."""
    return [rank for rank in there if rank.state is None]


def _behind(there: Sequence[Standing]) -> list[Standing]:
    """Ranks that hang and have begun fewer collectives of a group than another member."""
    most = _most(there)
    return [rank for rank in there if rank.is_still() and _lag(rank, most) is not None]


def _most(there: Sequence[Standing]) -> dict[str, int]:
    """By group, the largest number of collectives that a rank has begun."""
    most: dict[str, int] = {}
    for rank in there:
        for group, count in (rank.state.collectives if rank.state else {}).items():
            most[group] = max(most.get(group, 0), count)
    return most


def _lag(rank: Standing, most: dict[str, int]) -> tuple[str, int, int] | None:
    """(group, number begun by this rank, number begun by the group's first rank)."""
    counts = rank.state.collectives if rank.state else {}
    return next(((group, count, most[group]) for group, count in counts.items() if count < most[group]), None)


def _elsewhere(there: Sequence[Standing]) -> list[Standing]:
    """Ranks that hang outside a collective, while others wait in one."""
    if not any(rank.waits_in() for rank in there):
        return []
    return [rank for rank in there if rank.is_still() and rank.waits_in() is None]


def _silent(there: Sequence[Standing]) -> list[Standing]:
    found = [rank for rank in there if rank.is_silent()]
    return found if len(found) < len(there) else []


def _alone(there: Sequence[Standing]) -> list[Standing]:
    """Ranks that hang while others progress, and wait for none of them."""
    found = [rank for rank in there if rank.is_still() and rank.waits_in() is None]
    return found if len(found) < len(there) else []


def _fewest_events(there: Sequence[Standing]) -> list[Standing]:
    """Ranks that hang and have logged less than others, if nothing is known of collectives."""
    if any(rank.state and rank.state.collectives for rank in there):
        return []
    counts = [rank.state.events if rank.state else 0 for rank in there]
    found = [rank for rank, count in zip(there, counts, strict=True) if rank.is_still() and count == min(counts)]
    return found if len(found) < len(there) else []


_Rule = Callable[[Sequence[Standing]], list[Standing]]
_RULES: tuple[_Rule, ...] = (_stopped, _frozen, _unheard, _behind, _elsewhere, _silent, _alone, _fewest_events)


def _why(rule: _Rule, rank: Standing, there: Sequence[Standing]) -> str:
    """The difference of this rank from the others, by the rule that found it."""
    if rule is _frozen:
        return f"its launcher no longer reports, for {rank.unrenewed_seconds:.1f} s: its whole node stands still"
    if rule is _stopped and rank.state is not None:
        return f"its process is stopped (state {rank.state.state})"
    if rule is _unheard:
        return "its process has not begun"
    where = rank.waits_in()
    place = f"it waits in {where}" if where else "it is in no collective"
    if rule is _behind:
        lag = _lag(rank, _most(there))
        assert lag is not None
        return f"it has begun {lag[1]} collectives of group {lag[0]}, others {lag[2]}; {place}"
    if rule is _elsewhere:
        others = sorted({waits for each in there if (waits := each.waits_in())})
        return f"it is in no collective, while others wait in {', '.join(others)}"
    if rule is _silent:
        return "its Python no longer reports"
    if rule is _alone:
        return f"others progressed; {place}"
    return f"others have logged more events; {place}"


def _undecided(there: Sequence[Standing]) -> str:
    where = sorted({rank.waits_in() or "no collective" for rank in there})
    return f"{len(there)} ranks hang, in {', '.join(where)}, none behind the others"
