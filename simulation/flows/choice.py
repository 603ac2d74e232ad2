"""Chooses the algorithm of a collective by modelled time, and says why.

The model is that of NCCL's tuning: a latency for the start and for every hop, and the bytes of the busiest link over
its bandwidth. Source: NCCL 2.2x, src/graph/tuning.cc (latencies in microseconds, protocol and NVLS factors).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from simulation.flows.groups import RankGroup
from simulation.flows.nvls_flows import BETWEEN
from simulation.flows.ring_flows import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, ring_steps
from simulation.flows.train import NVLS, NVLS_TREE, PAT, RING, TREE

LL, LL128, SIMPLE = 0, 1, 2
PROTOCOL_NAMES = ("LL", "LL128", "Simple")
MIB = 1 << 20
PAT_BYTES = (MIB // 2, MIB)  # SimCCL 2.30 uses PAT between these sizes, as measured with NCCL 2.30.7 on H20


class LinkSpeeds(NamedTuple):
    """GB/s of one GPU's NVLink in one direction and of one NIC, and whether NVSwitches can add (NVLS)."""

    nvlink: float
    nic: float
    nvls: bool


# By protocol LL, LL128, Simple.
_START_US = {TREE: (6.8, 14.0, 8.4), RING: (6.6, 14.0, 8.4), PAT: (8.0, 8.0, 8.0)}
_NVLINK_US = {TREE: (0.6, 1.25, 4.0), RING: (0.6, 1.9, 3.4)}
_NIC_US = {TREE: (5.0, 8.5, 14.0), RING: (2.7, 4.0, 14.0)}
_NVLS_US, _NVLS_TREE_NIC_US, _NVLS_NIC_US = 25.0, 20.9, 18.0
_EFFICIENCY = {TREE: (1 / 3.8, 120 / 128, 0.92), RING: (0.5, 0.92, 1.0)}
_NVLS_EFFICIENCY, _PAT_EFFICIENCY = 0.85, 0.75
_PAT_RANK_US, _PAT_HOP_DIVISOR = 2.8, 3.5


class ModelledAlgorithm(NamedTuple):
    """An algorithm with its modelled time in microseconds, or the reason why it is not possible."""

    name: str
    us: float | None
    reason: str


class AlgorithmChoice(NamedTuple):
    """The chosen candidate's name, why, and what it was compared with."""

    name: str
    why: str
    candidates: tuple[ModelledAlgorithm, ...]


def protocol(algorithm: int, size_bytes: int) -> int:
    """NCCL's number of the protocol: the labels that SimCCL 2.30 gives by size."""
    if algorithm == PAT:
        return SIMPLE
    if algorithm in (NVLS, NVLS_TREE):
        return LL if size_bytes <= MIB else SIMPLE
    return LL if size_bytes <= 4 * MIB else LL128 if size_bytes <= 16 * MIB else SIMPLE


def choose(op: str, group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> AlgorithmChoice:
    """The algorithm for an AllReduce, AllGather or ReduceScatter of `size_bytes`; nvls-tree joins servers by a tree."""
    ring = ModelledAlgorithm("ring", ring_us(op, group, size_bytes, machine), "")
    if op != ALL_REDUCE:
        pat = _pat_candidate(op, group, size_bytes, machine)
        if pat.us is not None and PAT_BYTES[0] <= size_bytes <= PAT_BYTES[1]:
            why = "one GPU per server and 512 KiB to 1 MiB: PAT, as SimCCL 2.30 measured"
            return AlgorithmChoice("pat", why, (pat, ring))
        if pat.us is not None:
            pat = ModelledAlgorithm("pat", None, "outside 512 KiB to 1 MiB")
        return AlgorithmChoice("ring", f"{_shown(ring)}; pat: {pat.reason}", (ring, pat))
    candidates = [ring, _tree_candidate(group, size_bytes, machine), *nvls_candidates(group, size_bytes, machine)]
    best = min((each for each in candidates if each.us is not None), key=lambda each: each.us or 0.0)
    others = [each for each in candidates if each is not best]
    return AlgorithmChoice(best.name, "; ".join(map(_shown, (best, *others))), tuple(candidates))


def _shown(candidate: ModelledAlgorithm) -> str:
    return f"{candidate.name}: {candidate.reason if candidate.us is None else f'{candidate.us:.1f} us modelled'}"


def ring_us(op: str, group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> float:
    """Microseconds of a ring collective of `size_bytes`."""
    ranks, servers = len(group.members), len(group.servers)
    label, steps = protocol(RING, size_bytes), ring_steps(op, len(group.members))
    between = 0 if servers == 1 else 2 * servers if op == ALL_REDUCE else servers - 1
    nic_us = _NIC_US[TREE if ranks == servers else RING][label]
    latency = _START_US[RING][label] + (steps - between) * _NVLINK_US[RING][label] + between * nic_us
    return latency + _us(size_bytes * steps / ranks, _link_gbps(group, machine) * _EFFICIENCY[RING][label])


def _tree_candidate(group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> ModelledAlgorithm:
    ranks, servers = len(group.members), len(group.servers)
    if servers == 1:
        return ModelledAlgorithm("tree", None, "one server: its trees are chains")
    label = protocol(TREE, size_bytes)
    hops = (ranks / servers - 1) * _NVLINK_US[TREE][label] + math.log2(servers) * _NIC_US[TREE][label]
    latency = _START_US[TREE][label] + 2 * hops
    return ModelledAlgorithm(
        "tree", latency + _us(2 * size_bytes, _link_gbps(group, machine) * _EFFICIENCY[TREE][label]), ""
    )


def nvls_candidates(group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> list[ModelledAlgorithm]:
    """NVLS in one server, or with a tree or ring between the servers; times in microseconds for `size_bytes`."""
    missing = nvls_missing(group, machine)
    if missing:
        return [ModelledAlgorithm("nvls", None, missing)]
    inside, servers = machine.nvlink * _NVLS_EFFICIENCY, len(group.servers)
    if servers == 1:
        return [ModelledAlgorithm("nvls", _NVLS_US + _us(size_bytes, inside), "")]
    nics = machine.nic * group.local_count
    tree = max(_us(size_bytes, inside), _us(2 * size_bytes, nics))
    ring = max(_us(size_bytes, inside), _us(2 * size_bytes * (servers - 1) / servers, nics))
    return [
        ModelledAlgorithm(f"nvls-{BETWEEN[0]}", _NVLS_US + 2 * math.log2(servers) * _NVLS_TREE_NIC_US + tree, ""),
        ModelledAlgorithm(f"nvls-{BETWEEN[1]}", _NVLS_US + 2 * (servers - 1) * _NVLS_NIC_US + ring, ""),
    ]


def nvls_missing(group: RankGroup, machine: LinkSpeeds) -> str:
    """Why NVLS is not possible; empty if it is."""
    if not machine.nvls:
        return "the GPU's NVSwitches cannot add"
    if group.local_count < 2:
        return "a server has one rank of the group"
    return ""


def _pat_candidate(op: str, group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> ModelledAlgorithm:
    ranks = len(group.members)
    missing = pat_missing(op, group)
    if missing:
        return ModelledAlgorithm("pat", None, missing)
    hops = math.log2(ranks) * _NIC_US[TREE][SIMPLE] / _PAT_HOP_DIVISOR
    latency = _START_US[PAT][SIMPLE] + hops + ranks * _PAT_RANK_US
    return ModelledAlgorithm("pat", latency + _us(size_bytes * (ranks - 1) / ranks, machine.nic * _PAT_EFFICIENCY), "")


def pat_missing(op: str, group: RankGroup) -> str:
    """Why PAT is not possible; empty if it is."""
    if op not in (ALL_GATHER, REDUCE_SCATTER):
        return "PAT is for AllGather and ReduceScatter"
    if len(group.servers) == 1 or max(map(len, group.servers)) > 1:
        return "needs several servers with one rank of the group each"
    return ""


def _link_gbps(group: RankGroup, machine: LinkSpeeds) -> float:
    """GB/s that all rings or trees together have: of NVLink, or of the NICs of a server if they are slower."""
    links = [machine.nvlink] if group.local_count > 1 else []
    if len(group.servers) > 1:
        links.append(machine.nic * group.local_count)
    return min(links or [machine.nvlink])


def _us(size_bytes: float, gbps: float) -> float:
    """Microseconds for bytes at GB/s."""
    return size_bytes / gbps / 1e3


def nvls_between(candidates: Sequence[ModelledAlgorithm]) -> str:
    """The faster way between servers of the modelled NVLS candidates."""
    named = {each.name.removeprefix("nvls-"): each.us for each in candidates if each.us is not None}
    return min(BETWEEN, key=lambda between: named.get(between) or math.inf)
