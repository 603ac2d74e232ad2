"""Finds the bad rank, or the bad link between two ranks, of a host in the pattern peers: NVLink, PCIe or memory.

From three hosts on, two ranks are compared with the same two of the other hosts: two of one PCIe switch may reach more
than two of different sockets, on every host alike. With fewer hosts such tiers are learnt from the pairs themselves. A
rank all of whose pairs are bad is a bad device, most ranks of a host are a bad host (see `symptoms` for the tests).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from protocol.finding import PartFinding
from training.benchmarks.network.patterns.learning import learn
from training.benchmarks.network.patterns.tiers import Tiers, classes_of
from training.benchmarks.network.slow_parts.blame import finding
from training.benchmarks.network.slow_parts.chance import ALPHA
from training.benchmarks.network.slow_parts.figures import Figure, Symptom, alike, figure, without_common
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.noise import settle
from training.benchmarks.network.slow_parts.readings import DEVICES_PER_HOST, Readings
from training.benchmarks.network.slow_parts.symptoms import symptoms_of

_LABEL = re.compile(r".* (\d{1,3})-(\d{1,3})", re.DOTALL)
# From so many hosts on the median over them is a reference that one bad host does not move.
_LEAST_HOSTS = 3
# The share of a host's ranks that makes one bad host of them.
_MOST = 0.75
_CAUSE = "NVLink, PCIe, or the memory between them"
_ACTION = "take the host out of service, and check NVLink, PCIe links, IOMMU settings and NUMA placement of these ranks"


class _Pair(NamedTuple):
    """Two local ranks of a host, by node rank."""

    node: int
    one: int
    other: int

    @property
    def devices(self) -> tuple[int, int]:
        return self.node * DEVICES_PER_HOST + self.one, self.node * DEVICES_PER_HOST + self.other


def peer_findings(
    sizes: Sequence[Readings], names: Mapping[int, str], kinds: Mapping[int, str], bounds: Bounds
) -> list[PartFinding]:
    """The findings of the pattern peers; `sizes` are the readings of each size.

    `kinds` tells the kinds of hosts by node rank, if they differ: hosts of a kind are compared.
    """
    found = [each for each in (_of_pairs(alike(readings)) for readings in sizes) if each is not None]
    found = [each for each in found if each[1] == found[-1][1]]
    if not found:
        return []
    pairs = found[-1][1]
    symptoms = symptoms_of([_figure(readings, pairs, kinds, bounds) for readings, _ in found])
    return [
        finding("device" if device else "host", (node,), device, own, names, (_CAUSE, _ACTION))
        for (node, device), own in _subjects(symptoms, pairs).items()
    ]


def _of_pairs(readings: Readings) -> tuple[Readings, list[_Pair]] | None:
    """The readings whose label tells two local ranks of one host, and these; None without any."""
    told = [
        (place, match)
        for place, (members, label) in enumerate(zip(readings.members, readings.labels, strict=True))
        if len(members) == 1 and (match := _LABEL.fullmatch(label))
    ]
    pairs = [_Pair(readings.members[place][0], *sorted(map(int, match.groups()))) for place, match in told]
    if not pairs or any(pair.one == pair.other for pair in pairs):
        return None
    return readings.choose([place for place, _ in told]), pairs


def _figure(readings: Readings, pairs: Sequence[_Pair], kinds: Mapping[int, str], bounds: Bounds) -> Figure:
    """The figure of a size: pairs in one class, without what every host's same pair has in common; else by tiers."""
    plain = figure(readings, None, Tiers(), bounds)
    # With two ranks a host neither can be told from their link.
    devices = [pair.devices for pair in pairs] if max(pair.other for pair in pairs) > 1 else None
    if len({pair.node for pair in pairs}) >= _LEAST_HOSTS:
        peers = [(pair.one, pair.other, kinds.get(pair.node)) for pair in pairs]
        return replace(plain, readings=without_common(readings, peers), pairs=devices)
    settled = settle(readings.columns["middle"], ALPHA)
    local = [(pair.one, pair.other) for pair in pairs]
    classes = classes_of(local, [0] * len(local), learn(local, settled.values, settled.noise), with_load=False)
    return replace(plain, pairs=devices, classes=classes)


def _subjects(symptoms: Sequence[Symptom], pairs: Sequence[_Pair]) -> dict[tuple[int, str], list[Symptom]]:
    """The symptoms of each (node rank, part of it); the part is empty for the host as a whole."""
    ranks: dict[int, set[int]] = {}
    for pair in pairs:
        ranks.setdefault(pair.node, set()).update(pair[1:])
    bad = {each.host for each in symptoms if each.host >= 0}
    of_host = {node: {device for device in bad if device // DEVICES_PER_HOST == node} for node in ranks}
    whole = {node for node, devices in of_host.items() if len(devices) >= max(2, _MOST * len(ranks[node]))}
    found: dict[tuple[int, str], list[Symptom]] = {}
    for each in symptoms:
        if each.host >= 0:
            node, rank = divmod(each.host, DEVICES_PER_HOST)
            part = f"local rank {rank}"
        elif bad.isdisjoint(pairs[each.place].devices):
            node, one, other = pairs[each.place]
            part = f"local ranks {one}-{other}"
        else:
            continue
        own = found.setdefault((node, "" if node in whole else part), [])
        own += [each] * (each.name not in {known.name for known in own})
    return found
