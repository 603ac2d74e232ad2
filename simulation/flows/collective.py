"""Turns one collective into its schedule of flows, in either dialect."""

from typing import NamedTuple

from simulation.common.dialect import Repair
from simulation.flows.choice import (
    AlgorithmChoice,
    LinkSpeeds,
    choose,
    nvls_between,
    nvls_candidates,
    nvls_missing,
    protocol,
)
from simulation.flows.groups import RankGroup
from simulation.flows.names import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    AUTO,
    BROADCAST,
    REDUCE_SCATTER,
    RING_OPS,
    SEND_RECEIVE,
)
from simulation.flows.nvls_flows import nvls_schedule, original_nvls_schedule
from simulation.flows.pair_flows import all_to_all, broadcast, neighbours, original_all_to_all
from simulation.flows.pat_flows import pat_schedule
from simulation.flows.proxy_flows import proxied_all_to_all
from simulation.flows.ring_flows import original_ring_schedule, ring_schedule
from simulation.flows.train import ALGORITHM_NAMES, NVLS, PAT, RING, TREE, FlowSchedule
from simulation.flows.tree_flows import tree_schedule

# Numbers of the column `op`: those of SimAI's enumeration of collectives. It has none for transfers between neighbours.
OP_NUMBERS = {REDUCE_SCATTER: 1, ALL_GATHER: 2, ALL_REDUCE: 3, ALL_TO_ALL: 4, BROADCAST: 7, SEND_RECEIVE: 8}
ORIGINAL_NAMES = {ALL_TO_ALL: "AlltoAll"}
ALGORITHMS = {
    ALL_REDUCE: (AUTO, "ring", "tree", "nvls"),
    ALL_GATHER: (AUTO, "ring", "pat"),
    REDUCE_SCATTER: (AUTO, "ring", "pat"),
    ALL_TO_ALL: (AUTO,),
    BROADCAST: (AUTO, "ring"),
    SEND_RECEIVE: (AUTO,),
}
ORIGINAL_ALGORITHMS = (AUTO, "ring", "nvls")
ORIGINAL_NVLS_GPUS, ORIGINAL_NVLS_RANKS = ("H100", "H800"), 8
PXN_OPS = (*RING_OPS, ALL_TO_ALL)


class FlowWish(NamedTuple):
    """The user's wishes for every collective: an algorithm, proxies, what joins servers in NVLS, and the machine."""

    algorithm: str
    pxn: bool
    between: str
    machine: LinkSpeeds


class MadeFlows(NamedTuple):
    """A collective's schedule, its protocol's number, and how its algorithm was found."""

    schedule: FlowSchedule
    protocol: int
    choice: AlgorithmChoice


def make(op: str, group: RankGroup, size_bytes: int, first_id: int, wish: FlowWish, rounds: int = 1) -> MadeFlows:
    """The flows of a collective of `size_bytes`; `rounds` are those of a pipeline's neighbours."""
    choice = _decide(op, group, size_bytes, wish)
    schedule = _schedule(op, group, size_bytes, first_id, choice.name, pxn=wish.pxn, rounds=rounds)
    return MadeFlows(schedule, protocol(schedule.algorithm, size_bytes), choice)


def _decide(op: str, group: RankGroup, size_bytes: int, wish: FlowWish) -> AlgorithmChoice:
    if op == SEND_RECEIVE:
        return AlgorithmChoice("pairs", f"{op} has no other", ())
    if op not in RING_OPS:
        return choose(op, group, size_bytes, wish.machine)
    if wish.algorithm == "nvls" and not nvls_missing(group, wish.machine):
        candidates = nvls_candidates(group, size_bytes, wish.machine)
        between = nvls_between(candidates) if wish.between == AUTO else wish.between
        name = "nvls" if len(group.servers) == 1 else f"nvls-{between}"
        return AlgorithmChoice(name, "as asked", tuple(candidates))
    if wish.algorithm not in (AUTO, "nvls"):
        return AlgorithmChoice(wish.algorithm, "as asked", ())
    if wish.pxn:
        return AlgorithmChoice("ring", "--pxn is for rings", ())
    return choose(op, group, size_bytes, wish.machine)


def _schedule(
    op: str, group: RankGroup, size_bytes: int, first_id: int, name: str, *, pxn: bool, rounds: int
) -> FlowSchedule:
    if op == ALL_TO_ALL:
        return (proxied_all_to_all if pxn else all_to_all)(group, size_bytes, first_id)
    if op == BROADCAST:
        return broadcast(group, size_bytes, first_id)
    if op == SEND_RECEIVE:
        return neighbours(group, size_bytes, first_id, rounds)
    if name == "tree":
        return tree_schedule(group, size_bytes, first_id)
    if name == "pat":
        return pat_schedule(op, group, size_bytes, first_id)
    if name.startswith("nvls"):
        return nvls_schedule(group, size_bytes, first_id, name.removeprefix("nvls-"))
    return ring_schedule(op, group, size_bytes, first_id, pxn=pxn)


def make_original(
    op: str, group: RankGroup, size_bytes: int, first_id: int, *, nvls: bool, pxn: bool, gpu_type: str
) -> MadeFlows:
    """The flows of SimAI 1.6 for `size_bytes`.

    NVLS is what AS_NVLS_ENABLE switches on: it is used for AllReduce in TP groups of 8 ranks or more on H100 and H800,
    and makes no flow where the group has several servers. PXN is what AS_PXN_ENABLE switches on.
    """
    adds = gpu_type in ORIGINAL_NVLS_GPUS and len(group.members) >= ORIGINAL_NVLS_RANKS
    if op == ALL_TO_ALL:
        schedule = original_all_to_all(group, size_bytes, first_id)
    elif op == ALL_REDUCE and nvls and group.kind == "TP" and adds:
        schedule = original_nvls_schedule(group, size_bytes, first_id)
    else:
        schedule = original_ring_schedule(op, group, size_bytes, first_id, pxn=pxn)
    return MadeFlows(schedule, -1, AlgorithmChoice(ALGORITHM_NAMES[schedule.algorithm], "as the original", ()))


def repairs(op: str, group: RankGroup, size_bytes: int, made: MadeFlows, *, tp: int, pp: int) -> list[Repair]:
    """The repairs of SimCCL 2.30 and SimAI 1.6 that change this collective."""
    found = []
    lost = _lost_bytes(op, group, size_bytes)
    if lost and made.schedule.algorithm == RING:
        found.append(Repair("remainder", f"no byte is dropped: size // ranks // rings would lose {lost}"))
    if tp == 1 and group.kind in ("EP", "DP_EP"):
        found.append(Repair("expert groups", "they exist with tp 1"))
    if pp > 1 and group.kind in ("DP", "EP", "DP_EP"):
        found.append(Repair("pipeline", "no group crosses a stage: pp changes last, not before dp"))
    if group.kind == "PP":
        found.append(Repair("pipeline", "there are PP groups"))
    if len(set(map(len, group.servers))) > 1:
        found.append(Repair("uneven group", "rings and trees cover every rank"))
    return [*found, *_algorithm_repairs(op, group, made)]


def _algorithm_repairs(op: str, group: RankGroup, made: MadeFlows) -> list[Repair]:
    found = []
    several = len(group.servers) > 1
    if made.schedule.algorithm == TREE:
        found.append(Repair("tree", "its flows are made, not a ring's"))
    if several and made.choice.name.startswith("nvls"):
        found.append(Repair("NVLS", "several servers have flows"))
    if made.schedule.algorithm == PAT:
        found.append(Repair("PAT", "flows name the flow that brought their block"))
    if several and op == BROADCAST and group.local_count > 1:
        found.append(Repair("Broadcast", "each channel goes round its own ring"))
    return found


def kept_mistakes(op: str, group: RankGroup, size_bytes: int, made: MadeFlows, *, nvls: bool, pxn: bool) -> list[str]:
    """The mistakes in the original's flows of a collective of `size_bytes`, and which wishes it ignores."""
    found = []
    if nvls and made.schedule.algorithm != NVLS:
        found.append(f"NVLS is not used ({ALL_REDUCE} in TP groups of 8 ranks or more on H100 and H800 alone has it)")
    if pxn and op in (ALL_GATHER, ALL_TO_ALL):
        found.append(f"PXN has no effect on {op}")
    if not made.schedule.flow_count:
        why = "NVLS on several servers" if made.schedule.algorithm == NVLS else "fewer bytes than ranks * rings"
        found.append(f"no flow at all ({why})")
    elif made.schedule.algorithm == RING and _lost_bytes(op, group, size_bytes):
        found.append(f"{_lost_bytes(op, group, size_bytes)} bytes have no flow (size // ranks // rings)")
    covered = sum(map(len, group.servers))
    if covered < len(group.members) and op != ALL_TO_ALL:
        found.append(f"rings leave out {len(group.members) - covered} of {len(group.members)} ranks (uneven servers)")
    return found


def _lost_bytes(op: str, group: RankGroup, size_bytes: int) -> int:
    ranks, rings = len(group.members), group.local_count
    if op == SEND_RECEIVE:
        return 0
    parts = ranks if op == ALL_TO_ALL else rings if op == BROADCAST else ranks * rings
    return size_bytes % parts
