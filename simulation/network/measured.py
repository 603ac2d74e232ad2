"""Slows a simulated cluster down by what a run of the benchmarks found: `network --what-if RUN_FOLDER`.

The hosts of a round are the servers of the topology in the order of their node ranks.
"""

import re
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import BaseModel

from common.errors import MistakeList, input_problem
from protocol.finding import PartFinding
from simulation.common.run_folder import read_record, rounds
from simulation.network.placing import Homes, homes_of
from simulation.topology.fabric import GPU, SWITCH, Fabric
from simulation.topology.whatif import scaled

LEAST_SHARE = 0.001  # of its rate that a part keeps in the simulation
_NUMBER = re.compile(r"(\d+)\D*$")


class SlowPart(NamedTuple):
    """A host, or a NIC of one, with the share of the expected rate that was measured (a median over rounds)."""

    host: str
    server: int
    device: str
    share: float


class MeasuredFaults(NamedTuple):
    """The network with slower links, how many times as long its ranks compute, and what was and was not taken over."""

    fabric: Fabric
    slowness: dict[int, float]
    notes: list[str]


def measured_faults(folder: Path, fabric: Fabric) -> MeasuredFaults:
    """The network as a run found it.

    A host that is slow as a whole has its NICs and its computation slowed down, a slow NIC the link of its GPU.

    Raises:
        InputProblems: the folder is no run's, or a host has no server in the network.
    """
    parts, notes = _slow_parts(folder)
    homes = homes_of(fabric)
    servers = 1 + max(homes.server)
    mistakes = MistakeList()
    for part in parts:
        if part.server >= servers:
            allowed = f"is node rank {part.server}, but the network has {servers} servers"
            mistakes.add("--what-if", f"host {part.host}", allowed)
    mistakes.check()
    shares: dict[int, float] = {}
    slowness: dict[int, float] = {}
    for part in parts:
        gpus = _gpus(part, homes)
        for gpu in gpus:
            shares[gpu] = shares.get(gpu, 1.0) * part.share
            if not part.device:
                slowness[gpu] = slowness.get(gpu, 1.0) / part.share
        what = f"NIC {part.device} of {part.host}" if part.device else f"host {part.host}"
        also = "" if part.device else " and computation"
        said = f"GPUs {gpus[0]} to {gpus[-1]}" if len(gpus) > 1 else f"GPU {gpus[0]}"
        notes.append(f"{what}: {100 * part.share:.0f} % of the expected rate, so are the NICs{also} of {said}")
    if not parts:
        notes.append(f"{folder}: no host and no NIC was slower than expected")
    return MeasuredFaults(_slowed(fabric, shares), slowness, notes)


def _gpus(part: SlowPart, homes: Homes) -> list[int]:
    """The GPUs whose NICs a part concerns; a NIC is that of the GPU in the slot that its name's number says."""
    every = [gpu for gpu, server in enumerate(homes.server) if server == part.server]
    match = _NUMBER.search(part.device)
    return [every[int(match[1]) % len(every)]] if match else every


def _slowed(fabric: Fabric, shares: dict[int, float]) -> Fabric:
    """The network whose links between these GPUs and switches keep the share of their bandwidth."""
    texts = {text: number for number, text in enumerate(fabric.texts)}
    kinds = fabric.kinds[:]
    for number, (one, other, kind) in enumerate(fabric.links()):
        gpu, switch = (one, other) if fabric.roles[one] == GPU else (other, one)
        share = shares.get(gpu, 1.0)
        if share < 1 and fabric.roles[gpu] == GPU and fabric.roles[switch] == SWITCH:
            text = fabric.texts[kind]
            text = text._replace(bandwidth=scaled(text.bandwidth, share))
            kinds[number] = texts.setdefault(text, len(texts))
    return fabric._replace(kinds=kinds, texts=list(texts))


def _slow_parts(folder: Path) -> tuple[list[SlowPart], list[str]]:
    """The slow parts that the rounds of a run found, and the findings that no link of the network stands for."""
    found: dict[tuple[str, int, str], list[float]] = {}
    left: dict[str, None] = {}
    for path in rounds(folder, "--what-if"):
        record = read_record(path, _Round)
        servers = {node.host: node.node_rank for node in record.nodes}
        for finding in record.findings:
            if finding.share_of_expected is None or finding.share_of_expected >= 1:
                continue
            if finding.part not in ("host", "device"):
                left[f"not simulated, since it is no host's and no NIC's: {finding.sentence}"] = None
                continue
            for host in finding.hosts:
                if host not in servers:
                    raise input_problem(str(path), None, f"a finding is about {host}, which is none of its nodes")
                shares = found.setdefault((host, servers[host], finding.device), [])
                shares.append(max(finding.share_of_expected, LEAST_SHARE))
    return [SlowPart(*key, median(shares)) for key, shares in found.items()], list(left)


class _Node(BaseModel):
    """The fields that are read of a node of round.json."""

    host: str
    node_rank: int


class _Round(BaseModel):
    """The fields that are read of round.json."""

    nodes: list[_Node]
    findings: list[PartFinding] = []
