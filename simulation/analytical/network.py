"""Reads a cluster off a topology file: servers, slowest links, and how much of their NICs groups get over leaves.

Servers of a group send to the next one's GPU in the same place (AllToAll: to all others). What leaves a leaf shares its
uplinks, that of all groups of the kind at once. Leaves alone are looked at, not how switches choose among uplinks.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from common.errors import InputProblems, MistakeList, input_problem
from common.units import bandwidth_bps
from simulation.analytical.machine import Cluster, Division
from simulation.analytical.parts import GPUS, NICS
from simulation.analytical.placement import ranks_and_stride
from simulation.topology import whatif
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.homes import homes_of
from simulation.topology.reading import read

REACHED = NICS["cx7"] / 50  # of a NIC's rate, as of ConnectX-7's 400 Gbit/s
BYTE_RATE = 8e9  # bit/s of a GB/s


class ClusterNetwork:
    """The cluster that a file describes; `slowness` is how many times as long its slowest GPU computes."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            InputProblems: it cannot be read, or its servers or GPUs are none that a cluster is made of.
        """
        self._path, fabric = path, read(path).fabric
        self.server, mistakes = homes_of(fabric).server, MistakeList()
        self.slowness = 1 / min(whatif.slow_gpus_of(path).values(), default=1.0)
        self._nics: list[dict[int, float]] = [{} for _gpu in range(fabric.gpus)]
        self._nvlink = [0.0] * fabric.gpus
        self._uplink: dict[int, float] = {}
        self._add_links(fabric)
        sizes = set(Counter(self.server).values())
        if len(sizes) > 1:
            mistakes.add(str(path), None, f"has servers of {' and '.join(map(str, sorted(sizes)))} GPUs")
        several = len(set(self.server)) > 1
        for rates, what in ((self._nvlink, "an NVSwitch"), (list(map(len, self._nics)), "a switch of the network")):
            needed = several if rates is not self._nvlink else max(sizes) > 1
            if needed and not min(rates):
                mistakes.add(str(path), None, f"GPU {rates.index(0)} has no link to {what}")
        mistakes.check()
        self.cluster = self._cluster(path, fabric, sizes.pop())
        self._known: dict[tuple[str, bool, Division], float] = {}

    def _add_links(self, fabric: Fabric) -> None:
        rates = [bandwidth_bps(text.bandwidth) / BYTE_RATE for text in fabric.texts]
        for one, other, kind in fabric.links():
            for node, peer in ((one, other), (other, one)):
                roles = fabric.roles[node], fabric.roles[peer]
                if roles == (GPU, NVSWITCH):
                    self._nvlink[node] += rates[kind]
                elif roles[0] == GPU != roles[1]:
                    self._nics[node][peer] = self._nics[node].get(peer, 0.0) + rates[kind]
                elif roles[0] != GPU != roles[1]:
                    self._uplink[node] = self._uplink.get(node, 0.0) + rates[kind]

    def _cluster(self, path: Path, fabric: Fabric, per_server: int) -> Cluster:
        part = GPUS.get(fabric.gpu_type)
        ports = max(map(len, self._nics), default=0)
        nic = REACHED * min((sum(each.values()) for each in self._nics), default=0.0) / max(ports, 1)
        nvlink = min(self._nvlink) or nic
        nvls = part.nvls_at(nvlink) if part else None
        sources = (("nvlink", str(path)), ("nic", f"{REACHED:g} of {path}"), ("nvls", "scaled by its NVLinks"))
        return Cluster(
            fabric.gpus, per_server, per_server * ports, nvlink, nic, nvls, fabric.gpu_type if part else "", "", sources
        )

    def share(self, group: str, division: Division, *, to_all: bool) -> float:
        """The share of the NICs' rate that groups of a kind get over the leaf that has the fewest uplinks for it.

        Raises:
            InputProblems: a GPU sends to one at another leaf, and none of its own has an uplink.
        """
        key = group, to_all, division
        if key not in self._known:
            self._known[key] = self._least(group, division, to_all=to_all)
        return self._known[key]

    def _least(self, group: str, division: Division, *, to_all: bool) -> float:
        asked: dict[int, float] = {}
        least = 1.0
        ranks, stride = ranks_and_stride(group, division)
        for first in self._firsts(ranks, stride):
            members = range(first, first + ranks * stride, stride)
            for gpu, part in self._leaving_all(members) if to_all else self._leaving_ring(members):
                onwards = {leaf: rate for leaf, rate in self._nics[gpu].items() if part and self._uplink.get(leaf)}
                if part and not onwards:
                    raise self._unreached(gpu, members)
                for leaf, rate in onwards.items():
                    load = part * (sum(self._nics[gpu].values()) / sum(onwards.values()))
                    least = min(least, 1 / load)
                    asked[leaf] = asked.get(leaf, 0.0) + rate * load
        return min([least, *(self._uplink[leaf] / rate for leaf, rate in asked.items())])

    def _unreached(self, gpu: int, members: range) -> InputProblems:
        """The mistake that a GPU has no way to the first of its group that is elsewhere."""
        elsewhere = (
            other
            for other in members
            if self.server[other] != self.server[gpu] and self._nics[other].keys().isdisjoint(self._nics[gpu])
        )
        return input_problem(
            str(self._path), None, f"GPU {gpu} does not reach GPU {next(elsewhere)}: GPUs do not forward"
        )

    def _firsts(self, ranks: int, stride: int) -> Iterator[int]:
        """The first ranks of all groups; those of an embedding group may lie one stage apart from each other."""
        gpus, reach = self.cluster.gpus, (ranks - 1) * stride
        for block in range(0, gpus, ranks * stride):
            yield from range(block, min(block + stride, gpus - reach))

    def _leaving_ring(self, members: range) -> Iterator[tuple[int, float]]:
        """The GPUs whose neighbour in the next server is at another leaf."""
        servers: dict[int, list[int]] = {}
        for gpu in members:
            servers.setdefault(self.server[gpu], []).append(gpu)
        rows = list(servers.values())
        for place, row in enumerate(rows if len(rows) > 1 else []):
            following = rows[(place + 1) % len(rows)]
            for number, gpu in enumerate(row):
                if self._nics[gpu].keys().isdisjoint(self._nics[following[number % len(following)]]):
                    yield gpu, 1.0

    def _leaving_all(self, members: range) -> Iterator[tuple[int, float]]:
        """Each GPU with the share of what it sends to other servers that goes to GPUs at none of its leaves."""
        in_server = Counter(self.server[gpu] for gpu in members)
        if len(in_server) < 2:
            return
        leaves_of = {gpu: frozenset(self._nics[gpu]) for gpu in members}
        alike = Counter(leaves_of.values())
        both = Counter((leaves, self.server[gpu]) for gpu, leaves in leaves_of.items())
        at_leaf: dict[int, set[frozenset[int]]] = {}
        for leaves in alike:
            for leaf in leaves:
                at_leaf.setdefault(leaf, set()).add(leaves)
        meeting = {leaves: set[frozenset[int]]().union(*(at_leaf[leaf] for leaf in leaves)) for leaves in alike}
        for gpu, leaves in leaves_of.items():
            near = sum(alike[each] - both[each, self.server[gpu]] for each in meeting[leaves])
            yield gpu, 1 - near / (len(members) - in_server[self.server[gpu]])
