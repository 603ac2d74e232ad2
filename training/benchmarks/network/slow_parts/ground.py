"""Gives an adaptive search its ground, racks and kinds of hosts, from a topology or learnt; says what it hides."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from common.shortening import few
from training.benchmarks.network.patterns.designs import HostLayout, Members
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.slow_parts.adaptive import AdaptiveSearch, ScanResult, Search, uncompared
from training.benchmarks.network.slow_parts.comparison import PeerComparison, ScanRound, Times
from training.benchmarks.network.slow_parts.placing import LEAST_TO_PLACE, placed

# Rounds in which a search that learns racks first finds that there are none.
ROUNDS_TO_ASK = 2
_SHOWN = 5
LEARNT = "learnt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """The layout of the hosts, from where it is known, and whether racks are learnt before the search."""

    layout: HostLayout
    source: str = ""
    is_to_learn: bool = False

    def unseen(self, names: Sequence[str]) -> str:
        """The faults that a search on this ground does not see, in words; `names` are those of the hosts."""
        missed = uncompared(self.layout)
        told = f"; {_alone([names[host] for host in missed])}"
        return self._of_racks(names, missed) + told * bool(missed)

    def not_judged(self, names: Sequence[str], undecided: Sequence[Members]) -> list[str]:
        """Sentences on the hosts and the pairs of which the search says nothing, for FINISHED."""
        missed = [names[host] for host in uncompared(self.layout)]
        return [*([_alone(missed)] if missed else []), *([unclear(names, undecided)] if undecided else [])]

    def _of_racks(self, names: Sequence[str], missed: Sequence[int]) -> str:
        racks, cells = len(set(self.layout.racks)), self.layout.cells()
        if racks < 2:
            why = {
                LEARNT: "no racks show",
                "": f"racks are not looked for among fewer than {LEAST_TO_PLACE} hosts, or hosts of several kinds",
            }.get(self.source, "all hosts are in one rack")
            return f"{why}: a host behind uplinks that are slower than it is not seen"
        lone = [names[cell[0]] for cell in cells if len(cell) == 1 and cell[0] not in missed]
        text = (
            f"hosts are compared within {racks} racks ({self.source}): uplinks and paths between racks are not searched"
        )
        if self.source == LEARNT:
            text += "; a host in a wrong one of them is not seen if it is as fast as uplinks: topology tells racks"
        if lone:
            text += f"; alone in a rack, or slow to everybody, and compared across racks: {few(lone, _SHOWN)}"
        return text


def unclear(names: Sequence[str], undecided: Sequence[Members]) -> str:
    """A sentence on the pairs that a search leaves undecided."""
    pairs = few(["-".join(names[place] for place in members) for members in undecided], _SHOWN)
    return f"pair {pairs}: slow, and neither host is slow with the others: measure it again"


def _alone(names: Sequence[str]) -> str:
    return f"compared with nobody, for too few are like them: {few(names, _SHOWN)}"


def ground_of(node_ranks: Sequence[int], around: Topology) -> Ground:
    """The ground of these hosts, as far as it is known before anything is measured."""
    kinds = [around.kinds.get(rank, "") for rank in node_ranks]
    number = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    layout = replace(HostLayout.flat(len(node_ranks)), kinds=tuple(map(number.__getitem__, kinds)))
    if around.tiers is not None:
        block = around.tiers.blocks[0] if around.tiers.blocks else {}
        racks = tuple(block.get(rank, -1 - rank if block else 0) for rank in node_ranks)
        return Ground(layout=replace(layout, racks=racks), source=around.tiers.source)
    return Ground(layout=layout, is_to_learn=len(number) == 1 and len(node_ranks) >= LEAST_TO_PLACE)


Searched = Generator[ScanRound, Sequence[Times], tuple[ScanResult, Ground]]


def searched(ground: Ground, comparison: PeerComparison, find: Search) -> Searched:
    """The search, after the racks are learnt if need be; returns what was found, and on which ground."""
    count, asked = len(ground.layout.racks), 0
    if ground.is_to_learn:
        learning = placed(count)
        this_round = next(learning)
        while True:
            times = yield this_round
            asked += 1
            try:
                this_round = learning.send(times)
            except StopIteration as end:
                racks: tuple[int, ...] = end.value or ground.layout.racks
                break
        ground = replace(ground, layout=replace(ground.layout, racks=racks), source=LEARNT)
    result = yield from AdaptiveSearch(count, comparison, find, ground.layout).run()
    return replace(result, rounds=result.rounds + asked), ground
