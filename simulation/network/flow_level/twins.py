"""Finds out which hops of a job are alike, and refines no more of them than it has to.

One of parallel hops is refined, whose flows wait for those of parallel hops; one of different collectives between the
same ranks, hop by hop; and where nothing else is sent, one of several groups that are copies of each other and share no
link and no rank.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain

from simulation.network.flow_level.hops import Hop
from simulation.network.flow_level.lanes import Costs
from simulation.network.flow_level.net import HopNet, Laid
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.refine import Likeness, Net, refine


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
    counted = [(kind, counts[hop]) for hop, kind in enumerate(kinds)]
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


def hop_kinds(net: HopNet, laid: Sequence[Laid]) -> list[Hashable]:
    """The properties that distinguish hops, whatever is around them."""
    numbers: dict[Costs, int] = {}
    return [
        (key, hop.steps, hop.size, hop.gap, numbers.setdefault(each.costs, len(numbers)))
        for key, hop, each in zip(net.key_of_hop(), net.hops, laid, strict=True)
    ]


def refined(
    net: HopNet,
    laid: Sequence[Laid],
    ways: PortRoutes,
    rank_kind: Sequence[Hashable],
    kinds: Sequence[Hashable],
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
            [tuple([(place[first_of[parent]], shift) for parent, shift in hop.parents]) for hop in hops],
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
                known[like] = _parallel_in(net.hops[hops.start : hops.stop], hops.start)
            found += [hops.start + place for place in known[like]]
    return found


def _parallel_in(hops: Sequence[Hop], begin: int) -> list[int]:
    """Within one group, whose hops are numbered from `begin`: the places of the first hops."""
    firsts: dict[Hop, int] = {}
    found = [firsts.setdefault(hop._replace(parents=()), place) for place, hop in enumerate(hops)]
    after = [sorted((found[parent - begin], shift) for parent, shift in hop.parents) for hop in hops]
    alike = all(after[place] == after[first] for place, first in enumerate(found))
    return found if alike else [*range(len(hops))]


def _models(net: HopNet, laid: Sequence[Laid], kinds: Sequence[Hashable]) -> list[int]:
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


def _is_model(net: HopNet, laid: Sequence[Laid], kinds: Sequence[Hashable], key: int, other: int) -> bool:
    """Whether the hops of another collective are between the same ranks, on the same ways, after the same parents, and
    those of the same kind there are of the same kind here."""
    later = net.first_hop[key] - net.first_hop[other]
    own: dict[Hashable, Hashable] = {}
    return all(
        _alike_hops(net.hops[one], net.hops[two], later)
        and laid[one].forward == laid[two].forward
        and laid[one].back == laid[two].back
        and own.setdefault(kinds[two], kinds[one]) == kinds[one]
        for one, two in zip(net.of_key(key), net.of_key(other), strict=True)
    )


def _alike_hops(one: Hop, two: Hop, later: int) -> bool:
    return (
        one.source == two.source
        and one.target == two.target
        and len(one.parents) == len(two.parents)
        and all(
            parent == model + later and shift == its
            for (parent, shift), (model, its) in zip(one.parents, two.parents, strict=True)
        )
    )


class _Copies:
    """Groups of the only collective that are copies of a former one; `hops` are those of the groups that are none."""

    def __init__(
        self, net: HopNet, laid: Sequence[Laid], ways: PortRoutes, rank_kind: Sequence[Hashable], key: int
    ) -> None:
        self.net, self.laid, self.ways, self.rank_kind = net, laid, ways, rank_kind
        groups = net.groups_of_key[key]
        self._links: dict[int, int] = {}
        self._ranks: dict[int, int] = {}
        self._found: list[tuple[range, range]] = []
        alone = self._share_nothing([hops for _like, hops in groups])
        own = []
        for number, (like, hops) in enumerate(groups):
            if alone and like != number and self._is_copy(hops, groups[like][1]):
                self._found.append((hops, groups[like][1]))
            else:
                own.append(hops)
        self.hops = list(chain.from_iterable(own))

    def _share_nothing(self, groups: Sequence[range]) -> bool:
        """Whether no two groups have a port or a rank in common."""
        owner: dict[int, int] = {}
        for number, hops in enumerate(groups):
            for hop in hops:
                ends = [~node for node in self.net.hops[hop][:2] if node < len(self.rank_kind)]
                for each in (*self.laid[hop].forward, *self.laid[hop].back, *ends):
                    if owner.setdefault(each, number) != number:
                        return False
        return True

    def _is_copy(self, hops: range, model: range) -> bool:
        """Whether each hop has a like one in the same place of `model`, on links of the same kinds."""
        links: dict[int, int] = {}
        ranks: dict[int, int] = {}
        kind_of, laid, rank_kind = self.ways.kind_of, self.laid, self.rank_kind
        for one, two in zip(hops, model, strict=True):
            mine, theirs = laid[one], laid[two]
            if mine.costs != theirs.costs or len(mine.forward) != len(theirs.forward):
                return False
            for port, other in zip((*mine.forward, *mine.back), (*theirs.forward, *theirs.back), strict=True):
                if links.setdefault(port, other) != other or kind_of[port] != kind_of[other]:
                    return False
            for node, other in zip(self.net.hops[one][:2], self.net.hops[two][:2], strict=True):
                if node < len(rank_kind) and (
                    ranks.setdefault(node, other) != other or rank_kind[node] != rank_kind[other]
                ):
                    return False
        if len(set(links.values())) < len(links) or len(set(ranks.values())) < len(ranks):
            return False
        self._links |= links
        self._ranks |= ranks
        return True

    def add(self, of_hop: dict[int, int], of_link: dict[int, int], of_rank: list[int]) -> None:
        """Give the copies the colours of what they are copies of."""
        for hops, model in self._found:
            of_hop.update(zip(hops, [of_hop[each] for each in model], strict=True))
        of_link.update({port: of_link[model] for port, model in self._links.items()})
        for rank, like in self._ranks.items():
            of_rank[rank] = of_rank[like]
