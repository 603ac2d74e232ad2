"""Finds hops, links and ranks that do the same at the same time: colour refinement to the coarsest equitable partition.

Two hops stay alike while their links, parents, sender and receiver are; two links while the same kinds of hops use
them, two ranks while the same kinds of hops begin and end there. One hop of each kind is then simulated for all.
Only what has a neighbour that changed is looked at again, and the largest part keeps its colour (Paige and Tarjan).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
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
        of, found = self.of, dict[int, dict[Hashable, list[int]]]()
        for each in touched:
            found.setdefault(of[each], {}).setdefault(sign(each), []).append(each)
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


def refine(net: Net) -> Likeness:
    """The coarsest partition in which what is alike has alike neighbours."""
    users: dict[int, list[tuple[int, int]]] = {}
    at_rank: list[list[tuple[int, int]]] = [[] for _rank in net.rank_kind]
    children: list[list[int]] = [[] for _hop in net.hop_kind]
    ranks = len(net.rank_kind)
    for number, (forward, back) in enumerate(zip(net.forward, net.back, strict=True)):
        for place, port in enumerate((*forward, *back)):
            users.setdefault(port, []).append((number, place))
        for place, node in enumerate((net.source[number], net.target[number])):
            if node < ranks:
                at_rank[node].append((number, place))
        for parent, _shift in net.parents[number]:
            children[parent].append(number)
    of_links = _Colours({port: net.link_kind(port) for port in users})
    of_ranks = _Colours(dict(enumerate(net.rank_kind)))
    kinds = zip(net.hop_kind, net.source, net.target, strict=True)
    kind_of = of_ranks.of.get  # ranks of other kinds tell their hops apart, at the latest in the first round
    of_hops = _Colours({each: (kind, kind_of(one), kind_of(two)) for each, (kind, one, two) in enumerate(kinds)})
    hop, link, rank = of_hops.of, of_links.of, of_ranks.of

    def hop_sign(each: int) -> Hashable:
        ends = net.source[each], net.target[each]
        return (
            tuple(map(link.__getitem__, net.forward[each])),
            tuple(map(link.__getitem__, net.back[each])),
            tuple(sorted((hop[parent], shift) for parent, shift in net.parents[each])),
            tuple(rank[node] if node < ranks else -1 for node in ends),
        )

    def counted(places: list[tuple[int, int]]) -> Hashable:
        return tuple(sorted((hop[each], place) for each, place in places))

    hops: Iterable[int] = of_hops.of.keys()
    links: Iterable[int] = of_links.of.keys()
    nodes: Iterable[int] = of_ranks.of.keys()
    while hops or links or nodes:
        changed = of_hops.split(hops, hop_sign)
        links = {*links, *(each for one in changed for each in (*net.forward[one], *net.back[one]))}
        nodes = {*nodes, *(each for one in changed for each in (net.source[one], net.target[one]) if each < ranks)}
        after = {child for one in changed for child in children[one]}
        changed_links = of_links.split(links, lambda each: counted(users[each]))
        changed_ranks = of_ranks.split(nodes, lambda each: counted(at_rank[each]))
        after.update(one for each in changed_links for one, _place in users[each])
        after.update(one for each in changed_ranks for one, _place in at_rank[each])
        hops, links, nodes = after, set[int](), set[int]()
    return Likeness([hop[each] for each in range(len(net.hop_kind))], link, [rank[each] for each in range(ranks)])
