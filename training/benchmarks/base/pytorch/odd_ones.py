"""Names the devices whose digests differ from those of most devices of their kind. Needs no torch."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

FEWEST = 3
"""Devices of one kind among which most can agree against one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OddOnes:
    """`odd`: by rank what differs from most of its kind, in words. `split`: ranks of a kind in which no more than half
    agree, each kind a list. `alone`: how many ranks have too few of their kind to be compared.
    """

    odd: Mapping[int, str] = field(default_factory=dict)
    split: Sequence[Sequence[int]] = ()
    alone: int = 0


def odd_ones(kinds: Sequence[int], digests: Sequence[Sequence[int]], names: Sequence[str]) -> OddOnes:
    """Compare the digests of all ranks, each a value for each of `names`, among those of the same kind."""
    members: dict[int, list[int]] = defaultdict(list)
    for rank, kind in enumerate(kinds):
        members[kind].append(rank)
    odd: dict[int, str] = {}
    split: list[list[int]] = []
    alone = 0
    for ranks in members.values():
        (usual, count), *_ = Counter(tuple(digests[rank]) for rank in ranks).most_common()
        if count == len(ranks):
            alone += len(ranks) if len(ranks) < 2 else 0
        elif len(ranks) < FEWEST or 2 * count <= len(ranks):
            split.append(ranks)
        else:
            for rank in ranks:
                differs = [name for name, one, most in zip(names, digests[rank], usual, strict=True) if one != most]
                if differs:
                    odd[rank] = f"other bits than {count} of {len(ranks)} of its kind in {', '.join(differs)}"
    return OddOnes(odd=odd, split=split, alone=alone)
