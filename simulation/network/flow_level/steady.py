"""Finds collectives whose time nothing else can change: they are simulated once, however often they take place."""

from collections.abc import Sequence

from simulation.network.flow_level.net import Laid
from simulation.network.flow_level.quotient import NOBODY, Classes
from simulation.network.job import WAITS


def undisturbed(classes: Classes, laid: Sequence[Laid]) -> list[tuple[int, int]]:
    """Different collectives with the kind of ranks to which that applies.

    All ranks of a group are alike and wait for it, so that they begin at once, and on none of its links are flows of
    ranks of another kind or of collectives that nobody waits for.
    """
    net = classes.net
    found = _of_one_kind(classes)
    users: dict[int, set[tuple[int, int]]] = {}
    if not found:
        return []
    of_link, of_hop = classes.likeness.links, classes.likeness.hops
    for key in range(len(classes.hops_of_key)):
        seen = set[int]()
        for place in net.of_key(key):
            if of_hop[place] in seen:
                continue
            seen.add(of_hop[place])
            kinds = classes.kinds_at(of_hop[place])
            user = key, min(kinds) if len(kinds) == 1 else NOBODY
            for port in (*laid[place].forward, *laid[place].back):
                users.setdefault(of_link[port], set()).add(user)
    while True:
        disturbed = set[tuple[int, int]]()
        for on_link in users.values():
            if len({kind for _key, kind in on_link}) > 1 or not on_link <= found:
                disturbed |= on_link
        if not found & disturbed:
            return sorted(found)
        found -= disturbed


def _of_one_kind(classes: Classes) -> set[tuple[int, int]]:
    """Collectives that their ranks wait for, in groups of one kind of ranks."""
    kinds_of_key: dict[int, set[int]] = {}
    mixed = set[int]()
    for key, colours in enumerate(classes.hops_of_key):
        for colour in colours:
            hop, kinds = classes.hop(colour), classes.kinds_at(colour)
            kinds_of_key.setdefault(key, set()).update(kinds)
            if len(kinds) != 1 or (
                NOBODY in (classes.kind(hop.source), classes.kind(hop.target)) and len(kinds_of_key[key]) > 1
            ):
                mixed.add(key)
    waited = _waited_for(classes) - mixed
    return {(key, kind) for key in waited for kind in kinds_of_key.get(key, ())}


def _waited_for(classes: Classes) -> set[int]:
    """The different collectives for which their ranks wait."""
    net = classes.net
    asked = {
        (net.key_of[phase.collective], phase.mode)
        for program in net.job.programs
        for phase in program
        if phase.collective is not None
    }
    return {key for key, mode in asked if mode == WAITS} - {key for key, mode in asked if mode != WAITS}
