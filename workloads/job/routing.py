"""Decides which tokens go to which expert: one global routing, of which every rank sees its part.

Ranks and experts are those of one expert-parallel group, tp x ep (`etp` tensor ranks change fastest). What rank i
sends to rank j is by construction what j receives from i. A token goes to `topk` different experts, once to each.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Counts = tuple[tuple[int, ...], ...]
"""Tokens by source rank and expert."""


@dataclass(frozen=True)
class Routing:
    """counts[source][expert]: tokens that each of the etp * ep ranks sends to each expert."""

    counts: Counts
    ep: int
    etp: int = 1

    @cached_property
    def local_experts(self) -> int:
        """Experts of one rank; expert x lives on expert-parallel rank x // local_experts."""
        return len(self.counts[0]) // self.ep

    def sent(self, rank: int) -> tuple[int, ...]:
        """Tokens that `rank` of the tp x ep group sends to each of the ep ranks with its own tensor rank."""
        row, step = self.counts[rank], self.local_experts
        return tuple(sum(row[first : first + step]) for first in range(0, len(row), step))

    def received(self, rank: int) -> tuple[int, ...]:
        """Tokens that `rank` receives from each of the ep ranks with its own tensor rank."""
        own, tensor = divmod(rank, self.etp)
        return tuple(self.sent(source * self.etp + tensor)[own] for source in range(self.ep))

    def received_by_tensor_ranks(self, rank: int) -> tuple[int, ...]:
        """Tokens that each tensor rank of `rank`'s experts received, which they gather among them."""
        own = rank // self.etp
        return tuple(sum(self.received(own * self.etp + tensor)) for tensor in range(self.etp))

    def chunks(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """Tokens for each local expert of `rank`, a row for each source: tensor ranks outside, ep ranks inside."""
        first = rank // self.etp * self.local_experts
        return tuple(
            self.counts[source * self.etp + tensor][first : first + self.local_experts]
            for tensor in range(self.etp)
            for source in range(self.ep)
        )

    def tokens_per_expert(self, rank: int) -> tuple[int, ...]:
        """Tokens of each local expert of `rank`, from all sources."""
        return tuple(map(sum, zip(*self.chunks(rank), strict=True)))


def routing(text: str, *, tokens: int, topk: int, experts: int, ep: int, etp: int = 1) -> Routing:
    """The routing that `text` names: balanced, zipf:EXPONENT or file:PATH. tokens: those of one rank.

    Raises:
        ValueError: the text or the file is no routing of these sizes.
    """
    kind, _, value = text.partition(":")
    if not 1 <= topk <= experts or experts % ep:
        raise ValueError(f"{experts} experts over {ep} ranks with topk {topk} is no routing")
    if kind == "balanced" and not value:
        row = _spread([1.0] * experts, tokens, topk)
        return Routing((row,) * (ep * etp), ep, etp)
    if kind == "zipf":
        try:
            exponent = float(value)
        except ValueError:
            raise ValueError(f"routing {text!r}: the exponent is no number, as in zipf:1.2") from None
        if not 0 <= exponent < 100:
            raise ValueError(f"routing {text!r}: the exponent is from 0 to 100")
        row = _spread([(rank + 1) ** -exponent for rank in range(experts)], tokens, topk)
        return Routing((row,) * (ep * etp), ep, etp)
    if kind == "file":
        return Routing(_read(Path(value), tokens=tokens, topk=topk, experts=experts, ranks=ep * etp), ep, etp)
    raise ValueError(f"routing {text!r} is none of balanced, zipf:EXPONENT, file:PATH")


def _spread(weights: list[float], tokens: int, topk: int) -> tuple[int, ...]:
    """tokens * topk copies by weight, none above `tokens`; what rounding leaves goes to the first."""
    counts = _by_weight(weights, tokens, tokens * topk)
    rest = tokens * topk - sum(counts)
    while rest:
        for expert in range(len(counts)):
            if rest and counts[expert] < tokens:
                counts[expert] += 1
                rest -= 1
    return tuple(counts)


def _by_weight(weights: list[float], tokens: int, left: int) -> list[int]:
    """`left` copies by weight, rounded down, none above `tokens`."""
    counts = [0] * len(weights)
    open_experts = list(range(len(weights)))
    while left and open_experts:
        total = sum(weights[expert] for expert in open_experts)
        # Cap the heaviest first: what they cannot take goes to the others by weight.
        full = [expert for expert in open_experts if weights[expert] * left > total * tokens]
        if not full:
            break
        for expert in full:
            counts[expert] = tokens
        left -= tokens * len(full)
        open_experts = [expert for expert in open_experts if expert not in set(full)]
    total = sum(weights[expert] for expert in open_experts)
    share = {expert: int(weights[expert] * left / total) for expert in open_experts} if open_experts else {}
    for expert, count in share.items():
        counts[expert] = count
    return counts


def _read(path: Path, *, tokens: int, topk: int, experts: int, ranks: int) -> Counts:
    """Counts from a JSON file: a list of counts by expert, or one such list for each rank of tp x ep."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"routing file {path}: {error}") from None
    rows = found if isinstance(found, list) and found and isinstance(found[0], list) else [found] * ranks
    if len(rows) != ranks:
        raise ValueError(f"routing file {path}: {len(rows)} rows, not one for each of {ranks} ranks")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != experts or not all(type(count) is int for count in row):
            raise ValueError(f"routing file {path}, row {number}: not a list of {experts} whole numbers")
        if min(row) < 0 or max(row) > tokens or sum(row) != tokens * topk:
            raise ValueError(
                f"routing file {path}, row {number}: counts are from 0 to the {tokens} tokens of a rank and add up to "
                f"{tokens} * topk {topk} = {tokens * topk}, not {sum(row)}"
            )
    return tuple(map(tuple, rows))
