"""Finds out which hops of a job are alike, and refines no more of them than it has to.

One of parallel hops is refined, whose flows wait for those of parallel hops; one of different collectives between the
same ranks, hop by hop; and where nothing else is sent, one of several groups that are copies of each other and share no
link and no rank.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from simulation.network.flow_level.hops import Hop
from simulation.network.flow_level.net import HopNet, Laid
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.refine import Likeness, Net, refine

_FIRST_TWO = itemgetter(0, 1)  # the ends of a hop, or its ports forward and back


def alike(net: HopNet, laid: Sequence[Laid], ways: PortRoutes, rank_kind: Sequence[Hashable]) -> Likeness:
    """Which hops, links and ranks do the same at the same time; `rank_kind` is what already tells ranks apart."""
    kinds = hop_kinds(net, laid)
    models = _models(net, laid, kinds)
    chosen = [key for key in net.keys if models[key] == key]
    copies = _Copies(net, laid, ways, rank_kind, chosen[0]) if len(chosen) == 1 else None
    first_of = _parallel(net)
    own = [hop for key in chosen for hop in (copies.hops if copies else net.of_key(key))]
    some = [hop for hop in own if first_of[hop] == hop]
    counts = Counter(first_of)
    counted = {hop: (kinds[hop], counts[hop]) for hop in some}
    found = refined(net, laid, ways, rank_kind, counted, some, first_of)
    if len(some) == len(net.hops):
        return found
    firsts = dict(zip(some, found.hops, strict=True))
    of_hop = {hop: firsts[first_of[hop]] for hop in own}
    if copies:
        copies.add(of_hop, found.links, found.ranks)
    colours: dict[tuple[int, int], int] = {}
    hops = [
        colours.setdefault((key, of_hop[hop]), len(colours))
        for key, model in enumerate(models)
        for hop in net.of_key(model)
    ]
    return found._replace(hops=hops)


def hop_kinds(net: HopNet, laid: Sequence[Laid]) -> list[int]:
    """Numbers of the properties that distinguish hops, whatever is around them."""
    numbers: dict[Hashable, int] = {}
    same: dict[int, int] = {}  # of the objects that many hops share, which are hashed once
    for each in laid:
        if id(each.costs) not in same:
            same[id(each.costs)] = numbers.setdefault(each.costs, len(numbers))
    return [
        numbers.setdefault((key, hop.steps, hop.size, hop.gap, same[id(each.costs)]), len(numbers))
        for key, hop, each in zip(net.key_of_hop(), net.hops, laid, strict=True)
    ]


def refined(
    net: HopNet,
    laid: Sequence[Laid],
    ways: PortRoutes,
    rank_kind: Sequence[Hashable],
    kinds: Mapping[int, Hashable] | Sequence[Hashable],
    chosen: Sequence[int],
    first_of: Sequence[int],
) -> Likeness:
    """The likeness of some hops; `first_of` is that of them to which a parent of them is parallel, if not itself."""
    place = {hop: number for number, hop in enumerate(chosen)}
    hops = [net.hops[hop] for hop in chosen]
    return refine(
        Net(
            [kinds[hop] for hop in chosen],
            [laid[hop].forward for hop in chosen],
            [laid[hop].back for hop in chosen],
            [
                tuple([(place[first_of[number + behind]], shift) for behind, shift in hop.parents])
                for number, hop in zip(chosen, hops, strict=True)
            ],
            [hop.source for hop in hops],
            [hop.target for hop in hops],
            rank_kind,
            lambda port: ways.kind_of[port],
        )
    )


def _parallel(net: HopNet) -> list[int]:
    """For each hop the first that is parallel to it: with its ends, its size and steps, after parallel parents."""
    found: list[int] = []
    for groups in net.groups_of_key:
        known: dict[int, list[int]] = {}
        for number, (like, hops) in enumerate(groups):
            if like == number:
                known[like] = _parallel_in(net.hops[hops.start : hops.stop])
            found += [hops.start + place for place in known[like]]
    return found


def _parallel_in(hops: Sequence[Hop]) -> list[int]:
    """Within one group: the places of the first hops."""
    firsts: dict[tuple[object, ...], int] = {}
    found = [firsts.setdefault((*hop[:4], *hop[5:]), place) for place, hop in enumerate(hops)]  # all but the parents
    after = [sorted((found[place + behind], shift) for behind, shift in hop.parents) for place, hop in enumerate(hops)]
    alike = all(after[place] == after[first] for place, first in enumerate(found))
    return found if alike else [*range(len(hops))]


def _models(net: HopNet, laid: Sequence[Laid], kinds: Sequence[int]) -> list[int]:
    """For each different collective the first one that tells its hops apart; itself if there is none before it."""
    found: list[int] = []
    by_count: dict[int, list[int]] = {}
    for key in net.keys:
        others = by_count.setdefault(len(net.of_key(key)), [])
        model = next((other for other in others if _is_model(net, laid, kinds, key, other)), key)
        if model == key:
            others.append(key)
        found.append(model)
    return found


def _is_model(net: HopNet, laid: Sequence[Laid], kinds: Sequence[int], key: int, other: int) -> bool:
    """Whether the hops of another collective are between the same ranks, on the same ways, after the same parents, and
    those of the same kind there are of the same kind here."""
    hops, own = net.hops, dict[int, int]()
    for one, two in zip(net.of_key(key), net.of_key(other), strict=True):
        mine, theirs = hops[one], hops[two]
        if mine.source != theirs.source or mine.target != theirs.target or mine.parents != theirs.parents:
            return False
        if laid[one][:2] != laid[two][:2]:
            return False
        if own.setdefault(kinds[two], kinds[one]) != kinds[one]:
            return False
    return True


class _Group(NamedTuple):
    """Hops of a group with their ports, forward and back, and their ends: one hop's after another's."""

    hops: range
    ports: list[int]
    nodes: list[int]


class _Copy(NamedTuple):
    """The hops, links and ranks of a group, each with that of which it is a copy."""

    hops: Mapping[int, int]
    links: Mapping[int, int]
    ranks: Mapping[int, int]


class _Copies:
    """Groups of the only collective that are copies of a former one; `hops` are those of the groups that are none."""

    def __init__(
        self, net: HopNet, laid: Sequence[Laid], ways: PortRoutes, rank_kind: Sequence[Hashable], key: int
    ) -> None:
        self.net, self.laid, self.ways, self.rank_kind = net, laid, ways, rank_kind
        self._found: list[_Copy] = []
        groups = [(like, self._group(hops)) for like, hops in net.groups_of_key[key]]
        alone = self._share_nothing([group for _like, group in groups])
        own = []
        for number, (like, group) in enumerate(groups):
            copy = self._copy(group, groups[like][1]) if alone and like != number else None
            if copy:
                self._found.append(copy)
            else:
                own.append(group.hops)
        self.hops = list(chain.from_iterable(own))

    def _group(self, hops: range) -> _Group:
        part = slice(hops.start, hops.stop)
        ports = chain.from_iterable(chain.from_iterable(map(_FIRST_TWO, self.laid[part])))
        return _Group(hops, [*ports], [*chain.from_iterable(map(_FIRST_TWO, self.net.hops[part]))])

    def _share_nothing(self, groups: Sequence[_Group]) -> bool:
        """Whether no two groups have a port or a rank in common."""
        ports, ranks, count = set[int](), set[int](), len(self.rank_kind)
        for group in groups:
            its_ports, its_ranks = set(group.ports), {node for node in group.nodes if node < count}
            if not (ports.isdisjoint(its_ports) and ranks.isdisjoint(its_ranks)):
                return False
            ports |= its_ports
            ranks |= its_ranks
        return True

    def _copy(self, group: _Group, model: _Group) -> _Copy | None:
        """The group as a copy, if each hop has a like one in the same place of `model`, on links of the same kinds."""
        hops, others = group.hops, model.hops
        for mine, theirs in zip(self.laid[hops.start : hops.stop], self.laid[others.start : others.stop], strict=True):
            alike = mine.costs is theirs.costs or mine.costs == theirs.costs
            if not alike or len(mine.forward) != len(theirs.forward):
                return None
        links, count = _one_to_one(group.ports, model.ports), len(self.rank_kind)
        ends = [pair for pair in zip(group.nodes, model.nodes, strict=True) if pair[0] < count]
        ranks = _one_to_one([one for one, _other in ends], [other for _one, other in ends])
        if links is None or ranks is None:
            return None
        are_alike = _are_alike(links, self.ways.kind_of) and _are_alike(ranks, self.rank_kind)
        return _Copy(dict(zip(hops, others, strict=True)), links, ranks) if are_alike else None

    def add(self, of_hop: dict[int, int], of_link: dict[int, int], of_rank: list[int]) -> None:
        """Give the copies the colours of what they are copies of."""
        for copy in self._found:
            of_hop.update(zip(copy.hops, map(of_hop.__getitem__, copy.hops.values()), strict=True))
            of_link.update(zip(copy.links, map(of_link.__getitem__, copy.links.values()), strict=True))
            for rank, like in copy.ranks.items():
                of_rank[rank] = of_rank[like]


def _one_to_one(ones: Sequence[int], others: Sequence[int]) -> dict[int, int] | None:
    """The pairs as a map, if each of `ones` has one other, and no two have the same."""
    found = dict(zip(ones, others, strict=True))
    alike = [*map(found.__getitem__, ones)] == others
    return found if alike and len(set(found.values())) == len(found) else None


def _are_alike(pairs: Mapping[int, int], kinds: Sequence[Hashable]) -> bool:
    """Whether both of each pair are of the same kind."""
    return [*map(kinds.__getitem__, pairs)] == [*map(kinds.__getitem__, pairs.values())]
