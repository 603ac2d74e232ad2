"""Times collectives between servers by the description of a network: by its rates, or by flows that share its links.

Inside a server the measured times of NVLink stay. At flow level all groups of a kind run at once, in buffers of two
sizes, between which a time grows evenly; NCCL reaches NIC_SHARE of what the links could.
"""

from functools import cache
from pathlib import Path

from common.errors import MistakeList
from common.units import bandwidth_bps
from simulation.flows.collective import FlowWish, make
from simulation.flows.copies import in_copies
from simulation.flows.groups import ParallelSizes
from simulation.flows.names import ALL_REDUCE, AUTO, OP_OF_CELL
from simulation.network.conf import NetworkConf
from simulation.network.flow_level.port_routes import RAIL, PortRoutes
from simulation.network.flow_level.simulate import FlowWishes, simulate
from simulation.network.flow_level.window import window_bytes
from simulation.network.job_reading import JobGroups, job_of_collective
from simulation.network.placing import groups_by_kind, link_speeds
from simulation.predict.duration import SIMULATED
from simulation.predict.machine import NIC_SHARE, Machine
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.homes import homes_of
from simulation.topology.reading import read

FLOW = "flow"
SEND_NS = 3000  # before a send, as `simulation network` has it
_SMALL, _LARGE = 16 << 20, 512 << 20


class Network:
    """A network on which a job's ranks stand in order, one on each GPU."""

    def __init__(self, path: Path, level: str) -> None:
        """Read a topology file.

        Raises:
            InputProblems: it cannot be read, or its GPUs' ids do not come first.
        """
        self.path, self.level = path, level
        self.fabric = read(path).fabric
        mistakes = MistakeList()
        if any(role != GPU for role in self.fabric.roles[: self.fabric.gpus]):
            mistakes.add(f"{path}, line 2", None, "the ids of the GPUs must come before those of the switches")
        homes = homes_of(self.fabric)
        sizes = {homes.server.count(server) for server in set(homes.server)}
        if len(sizes) > 1:
            mistakes.add(str(path), None, f"has servers of {' and '.join(map(str, sorted(sizes)))} GPUs")
        self.nic_gbps = _rate_to_switches(self.fabric)
        if not self.nic_gbps and len(set(homes.server)) > 1:
            mistakes.add(str(path), None, "GPU 0 has no link to a switch")
        mistakes.check()
        self.per_server = sizes.pop()
        self._ways = PortRoutes(self.fabric, RAIL)
        self._pair_us = cache(self._simulated)

    def machine_on(self, machine: Machine) -> Machine:
        """The machine with the servers and NICs of the network."""
        return machine.on(self.per_server, self.nic_gbps or machine.nic_GBps)

    def check(self, gpus: int, mistakes: MistakeList) -> None:
        """Tell where a job has more GPUs than the network."""
        if gpus > self.fabric.gpus:
            mistakes.add("--gpus", gpus, f"{self.path} has {self.fabric.gpus} GPUs")

    def collective_us(self, op: str, ranks: int, stride: int, size: float, gpus: int) -> float | None:
        """A collective of `size` bytes in all groups of `ranks` that are `stride` apart, of `gpus`; None: by rates."""
        if self.level != FLOW or gpus % (ranks * stride) or ranks * stride <= self.per_server:
            return None
        small, large = self._pair_us(op, ranks, stride, gpus)
        return max(large * size / _LARGE, small + (large - small) * (size - _SMALL) / (_LARGE - _SMALL)) / NIC_SHARE

    def source(self, op: str, ranks: int, stride: int, size: float) -> str:
        """Where those times are from."""
        return SIMULATED

    def _simulated(self, op: str, ranks: int, stride: int, gpus: int) -> tuple[float, float]:
        """Microseconds of a collective of _SMALL and of _LARGE bytes."""
        sizes = ParallelSizes(ranks=gpus, per_server=1, tp=stride, pp=gpus // (ranks * stride))
        groups = groups_by_kind(sizes, self.fabric, original=False, kinds=("DP",))
        wish = FlowWish("ring" if OP_OF_CELL[op] == ALL_REDUCE else AUTO, False, AUTO, link_speeds(self.fabric))
        schedules = in_copies(lambda name, group, size: make(name, group, size, 0, wish).schedule)
        payload = NetworkConf().payload_bytes
        found = []
        for size in (_SMALL, _LARGE):
            job = job_of_collective(OP_OF_CELL[op], "DP", size, JobGroups(0, gpus, groups, schedules))
            window, _rtt = window_bytes(self._ways, self.fabric.gpus, payload, some=True)
            wishes = FlowWishes(SEND_NS, payload, window, {})
            run = simulate(self._ways, job, wishes, str(self.path))
            found.append((max(run.rank_ends()) - run.first_start()) / 1000)
        return found[0], found[1]


def _rate_to_switches(fabric: Fabric) -> float:
    """GB/s of GPU 0's links to what is no NVSwitch."""
    bits = 0.0
    for one, other, kind in fabric.links():
        ends = {one: other, other: one}
        if 0 in ends and fabric.roles[ends[0]] not in (GPU, NVSWITCH):
            bits += bandwidth_bps(fabric.texts[kind].bandwidth)
    return bits / 8e9
