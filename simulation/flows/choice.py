"""Chooses the algorithm of a collective by modelled time, and says why.

The times are those of `analytical`: one cost model for both verbs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from simulation.flows.groups import RankGroup
from simulation.flows.names import ALL_GATHER, ALL_REDUCE, BETWEEN, REDUCE_SCATTER
from simulation.flows.train import NVLS, PAT
from simulation.flows.train import NVLS_TREE as NVLS_TREE_NUMBER

PROTOCOL_NAMES = ("LL", "LL128", "Simple")


class LinkSpeeds(NamedTuple):
    """GB/s of one GPU's NVLink in one direction and of one NIC, nvls: of an AllReduce among 8 GPUs over NVSwitches.

    nvls is None where the NVSwitches cannot add. gpu_type: whose measured times inside a server are taken, if any.
    """

    nvlink: float
    nic: float
    nvls: float | None
    gpu_type: str = ""


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
    from simulation.analytical.nccl_tuning import LL, MIB, SIMPLE  # the original has none: it takes long to import
    from simulation.analytical.nccl_tuning import protocol as size_protocol

    if algorithm == PAT:
        return SIMPLE
    if algorithm in (NVLS, NVLS_TREE_NUMBER):
        return LL if size_bytes <= MIB else SIMPLE
    return size_protocol(size_bytes)


def _modelled(op: str, group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> list[ModelledAlgorithm]:
    """The algorithms of a collective of `size_bytes`, the one that is taken first."""
    from simulation.flows.modelled import modelled  # only where there is a choice: it takes long to import

    nvls = None if nvls_missing(group, machine) else machine.nvls
    times = modelled(op, group, size_bytes, (machine.nvlink, machine.nic, nvls, machine.gpu_type))
    return [ModelledAlgorithm(name, us, "") for name, us in times]


def choose(op: str, group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> AlgorithmChoice:
    """The algorithm of a collective of `size_bytes`; nvls-tree joins servers by a tree."""
    candidates = _modelled(op, group, size_bytes, machine)
    best = candidates[0]
    if op not in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER):
        return AlgorithmChoice(best.name, f"{op} has no other", tuple(candidates))
    if best.name == "pat":
        why = "one GPU per server and 512 KiB to 1 MiB: PAT, as SimCCL 2.30 measured"
        return AlgorithmChoice("pat", why, tuple(candidates))
    if op == ALL_REDUCE:
        possible = {each.name for each in candidates}
        if len(group.servers) == 1:
            candidates.append(ModelledAlgorithm("tree", None, "one server: its trees are chains"))
        if not any(name.startswith("nvls") for name in possible):
            candidates.append(ModelledAlgorithm("nvls", None, nvls_missing(group, machine)))
    else:
        candidates.append(ModelledAlgorithm("pat", None, pat_missing(op, group) or "outside 512 KiB to 1 MiB"))
    return AlgorithmChoice(best.name, "; ".join(map(_shown, candidates)), tuple(candidates))


def _shown(candidate: ModelledAlgorithm) -> str:
    return f"{candidate.name}: {candidate.reason if candidate.us is None else f'{candidate.us:.1f} us modelled'}"


def nvls_candidates(group: RankGroup, size_bytes: int, machine: LinkSpeeds) -> list[ModelledAlgorithm]:
    """NVLS in one server, or with a tree or ring between the servers; times in microseconds for `size_bytes`."""
    found = _modelled(ALL_REDUCE, group, size_bytes, machine)
    return [each for each in found if each.name.startswith("nvls")]


def nvls_missing(group: RankGroup, machine: LinkSpeeds) -> str:
    """Why NVLS is not possible; empty if it is."""
    if machine.nvls is None:
        return "the GPU's NVSwitches cannot add"
    if len(group.switches) < len(group.servers):
        return "a server has no NVSwitch"
    if group.local_count < 2:
        return "a server has one rank of the group"
    return ""


def pat_missing(op: str, group: RankGroup) -> str:
    """Why PAT is not possible; empty if it is."""
    if op not in (ALL_GATHER, REDUCE_SCATTER):
        return "PAT is for AllGather and ReduceScatter"
    if len(group.servers) == 1 or max(map(len, group.servers)) > 1:
        return "needs several servers with one rank of the group each"
    return ""


def nvls_between(candidates: Sequence[ModelledAlgorithm]) -> str:
    """The faster way between servers of the modelled NVLS candidates."""
    named = {each.name.removeprefix("nvls-"): each.us for each in candidates if each.us is not None}
    return min(BETWEEN, key=lambda between: named.get(between) or math.inf)
