"""Finds hops, links and ranks that do the same at the same time: colour refinement to the coarsest equitable partition.

Two hops stay alike while their links, parents, sender and receiver are; two links while the same kinds of hops use
them, two ranks while the same kinds of hops begin and end there. One hop of each kind is then simulated for all.
Only what has a neighbour that changed is looked at again, and the largest part keeps its colour (Paige and Tarjan).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple


class Likeness(NamedTuple):
    """The colours of hops, links and ranks: what has the same is alike."""

    hops: list[int]
    links: dict[int, int]
    ranks: list[int]


class Net(NamedTuple):
    """The network that is refined: of each hop its links forward and back, parents with their shifts, and its ends.

    `hop_kind` and `rank_kind` are what already tells hops and ranks apart; ends that are no ranks are NVSwitches.
    """

    hop_kind: Sequence[Hashable]
    forward: Sequence[tuple[int, ...]]
    back: Sequence[tuple[int, ...]]
    parents: Sequence[tuple[tuple[int, int], ...]]
    source: Sequence[int]
    target: Sequence[int]
    rank_kind: Sequence[Hashable]
    link_kind: Callable[[int], Hashable]


class _Colours:
    """The colours of one sort of objects."""

    def __init__(self, kinds: dict[int, Hashable]) -> None:
        numbers: dict[Hashable, int] = {}
        self.of = {each: numbers.setdefault(kind, len(numbers)) for each, kind in kinds.items()}
        self.sizes = Counter(self.of.values())
        self._next = len(numbers)

    def split(self, touched: Iterable[int], sign: Callable[[int], Hashable]) -> list[int]:
        """Part those whose signs differ; returns what got another colour."""
        of, sizes, found = self.of, self.sizes, dict[int, dict[Hashable, list[int]]]()
        for each in touched:
            colour = of[each]
            if sizes[colour] > 1:
                found.setdefault(colour, {}).setdefault(sign(each), []).append(each)
        changed: list[int] = []
        for colour, parts in found.items():
            groups = sorted(parts.values(), key=len)
            if sum(map(len, groups)) == self.sizes[colour]:
                groups.pop()  # the largest keeps its colour
            for group in groups:
                self.sizes[colour] -= len(group)
                self.sizes[self._next] = len(group)
                of.update(dict.fromkeys(group, self._next))
                self._next += 1
                changed += group
        return changed


class _Neighbours:
    """Who has to do with whom: the hops on each link and at each rank, with their places there, and those of a hop."""

    def __init__(self, net: Net) -> None:
        self._net, self._ranks = net, len(net.rank_kind)
        on_link: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.at_rank: list[list[tuple[int, int]]] = [[] for _rank in net.rank_kind]
        self.children: list[list[int]] = [[] for _hop in net.hop_kind]
        for number, ends in enumerate(zip(net.source, net.target, strict=True)):
            for place, port in enumerate((*net.forward[number], *net.back[number])):
                on_link[port].append((number, place))
            for place, node in enumerate(ends):
                if node < self._ranks:
                    self.at_rank[node].append((number, place))
            for parent, _shift in net.parents[number]:
                self.children[parent].append(number)
        self.on_link = dict(on_link)

    def links_of(self, hop: int) -> tuple[int, ...]:
        """The links of a hop, forward and back."""
        return *self._net.forward[hop], *self._net.back[hop]

    def ranks_of(self, hop: int) -> list[int]:
        """The ranks at the ends of a hop."""
        return [node for node in (self._net.source[hop], self._net.target[hop]) if node < self._ranks]


def refine(net: Net) -> Likeness:
    """The coarsest partition in which what is alike has alike neighbours."""
    near = _Neighbours(net)
    of_links = _Colours({port: net.link_kind(port) for port in near.on_link})
    of_ranks = _Colours(dict(enumerate(net.rank_kind)))
    kinds = zip(net.hop_kind, net.source, net.target, strict=True)
    kind_of = of_ranks.of.get  # ranks of other kinds tell their hops apart, at the latest in the first round
    of_hops = _Colours({each: (kind, kind_of(one), kind_of(two)) for each, (kind, one, two) in enumerate(kinds)})
    hop, link, rank = of_hops.of, of_links.of, of_ranks.of

    def hop_sign(each: int) -> Hashable:
        return (
            tuple(map(link.__getitem__, net.forward[each])),
            tuple(map(link.__getitem__, net.back[each])),
            tuple(sorted([(hop[parent], shift) for parent, shift in net.parents[each]])),
            (rank.get(net.source[each]), rank.get(net.target[each])),
        )

    def counted(places: list[tuple[int, int]]) -> Hashable:
        found = [(hop[each], place) for each, place in places]
        if len(found) > 1:
            found.sort()
        return tuple(found)

    hops, links, ranks = set(hop), set(link), set(rank)
    while hops or links or ranks:
        changed = of_hops.split(hops, hop_sign)
        hops = set(chain.from_iterable(near.children[one] for one in changed))
        links.update(chain.from_iterable(map(near.links_of, changed)))
        ranks.update(chain.from_iterable(map(near.ranks_of, changed)))
        users = [near.on_link[port] for port in of_links.split(links, lambda port: counted(near.on_link[port]))]
        users += [near.at_rank[node] for node in of_ranks.split(ranks, lambda node: counted(near.at_rank[node]))]
        hops.update(one for each in users for one, _place in each)
        links, ranks = set(), set()
    return Likeness(list(hop.values()), link, list(rank.values()))
