"""Slows a simulated cluster down by what a run of the benchmarks found: `network --what-if RUN_FOLDER`.

The hosts of the largest round are the servers of the topology in the order of their node ranks, a host that is in
smaller ones alone by its node rank there. A host that is slow as a whole has its NICs and its computation slowed down,
a NIC the link of its GPU, a local rank the NVLinks of its GPU, a rack the uplinks of its switches. What counted errors
loses packets.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import BaseModel, NonNegativeInt

from common.errors import MistakeList
from common.summary import JsonValue, Summary, counted
from protocol.finding import PartFinding
from simulation.common.run_folder import read_record, rounds
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, Fabric
from simulation.topology.homes import Homes, homes_of
from simulation.topology.plausibility import some
from simulation.topology.whatif import scaled

LEAST_SHARE = 0.001  # of its rate that a part keeps in the simulation
LOSSY, ASSUMED_LOSS = "link_errors", "0.0001"  # of packets: counters of errors tell no rate
MOST_TOLD = 20  # rounds that cannot be read, and lines of what was taken over
_NUMBER = re.compile(r"(\d+)\D*$")
_LOCAL_RANK = re.compile(r"local rank (\d+)")
_RAIL = re.compile(r"\brail (\d+)")


class SlowPart(NamedTuple):
    """A part of a cluster by its finding, with the share of the expected rate that was measured (a median over rounds).

    `servers` are those of its hosts, `others` of a rack the other ones of the run; `loses` says whether it counted
    errors.
    """

    part: str
    hosts: tuple[str, ...]
    servers: tuple[int, ...]
    others: frozenset[int]
    device: str
    loses: bool
    share: float


class SlowLinks(NamedTuple):
    """The place of a part in a network: the links between some nodes and the nodes of a role; ranks that compute."""

    nodes: frozenset[int]
    role: int
    computing: tuple[int, ...]
    said: str


class MeasuredFaults(NamedTuple):
    """The network with slower links, how many times as long its ranks compute, and what was and was not taken over."""

    fabric: Fabric
    slowness: dict[int, float]
    notes: list[str]


def measured_faults(
    folder: Path, fabric: Fabric | None, mistakes: MistakeList, *, packets: bool
) -> MeasuredFaults | None:
    """The network as a run found it; without `packets`, which links lose, the notes say that errors cost nothing.

    What is wrong with the folder, or does not fit the network, is noted in `mistakes`; without a network, or with a
    mistake, there is no result.
    """
    before = len(mistakes.mistakes)
    parts, left = _slow_parts(folder, mistakes)
    homes = None if fabric is None else homes_of(fabric)
    if homes:
        _check_servers(f"--what-if {folder}", parts, homes, mistakes)
    if fabric is None or homes is None or len(mistakes.mistakes) > before:
        return None
    slowed: list[tuple[SlowLinks, SlowPart]] = []
    slowness: dict[int, float] = {}
    notes = list[str]()
    for part in parts:
        found, what = _links_of(part, fabric, homes), f"{part.part} {' '.join((*part.hosts[:3], part.device))}".rstrip()
        if not found.nodes:
            notes.append(f"not simulated, since no switch of the network is its own: {what}")
            continue
        slowed.append((found, part))
        for gpu in found.computing:
            slowness[gpu] = slowness.get(gpu, 1.0) / part.share
        if part.share < 1:
            notes.append(f"{what}: {100 * part.share:.0f} % of the expected rate, so are {found.said}")
        if part.loses and not packets:
            notes.append(f"not simulated, since fair rates lose nothing: {what}: errors")
        elif part.loses:
            notes.append(f"{what}: errors, so {found.said} lose packets; assumed is a share of {ASSUMED_LOSS}")
    if not parts:
        notes.append(f"{folder}: no part of the network was slower than expected")
    return MeasuredFaults(_slowed(fabric, slowed), slowness, [*_first(left), *_first(notes)])


def _check_servers(place: str, parts: Sequence[SlowPart], homes: Homes, mistakes: MistakeList) -> None:
    """The network has a server for each slow host, and a GPU for each local rank."""
    gpus, others, ranks = Counter(homes.server), dict[int, str](), dict[str, None]()
    for part in parts:
        match = _LOCAL_RANK.fullmatch(part.device)
        for host, server in zip(part.hosts, part.servers, strict=True):
            if server >= len(gpus):
                others[server] = f"{host} (node rank {server})"
            elif server >= 0 and match and int(match[1]) >= gpus[server]:
                ranks[f"{part.device} of {host}, whose server has {counted(gpus[server], 'GPU')}"] = None
    if others:
        named = some([others[server] for server in sorted(others)])
        mistakes.add(place, None, f"the network has {counted(len(gpus), 'server')}, and none for {named}")
    if ranks:
        mistakes.add(place, None, f"the network has no GPU for {some([*ranks])}")


def _first(lines: Sequence[str]) -> list[str]:
    """The first few lines, and how many more there are."""
    more = len(lines) - MOST_TOLD
    return [*lines[:MOST_TOLD], *([f"and {more} more such findings"] if more > 0 else [])]


def with_cost(answer: Summary, healthy_us: float, with_faults_us: float) -> Summary:
    """The summary with what the faults cost an iteration."""
    percent = 100 * (with_faults_us / healthy_us - 1) if healthy_us else 0.0
    costs: JsonValue = {"healthy_us": healthy_us, "with_faults_us": with_faults_us, "cost_percent": round(percent, 3)}
    said = f"without these faults {healthy_us:.3f} us, with them {with_faults_us:.3f} us"
    return answer._replace(
        text=f"{answer.text}\n{said}: they cost the job {percent:+.2f} %", data={**answer.data, "what_if": costs}
    )


def _links_of(part: SlowPart, fabric: Fabric, homes: Homes) -> SlowLinks:
    every = [gpu for gpu, server in enumerate(homes.server) if server in part.servers]
    if part.part == "rack":
        return _uplinks(part, fabric, homes)
    if match := _LOCAL_RANK.fullmatch(part.device):
        gpu = every[int(match[1])]
        return SlowLinks(frozenset([gpu]), NVSWITCH, (), f"the NVLinks of GPU {gpu}")
    if match := _NUMBER.search(part.device):
        gpu = every[int(match[1]) % len(every)]
        return SlowLinks(frozenset([gpu]), SWITCH, (), f"the NICs of GPU {gpu}")
    said = f"GPUs {every[0]} to {every[-1]}" if len(every) > 1 else f"GPU {every[0]}"
    if part.part == "device":
        return SlowLinks(frozenset(every), SWITCH, (), f"the NICs of {said}")
    return SlowLinks(frozenset(every), SWITCH, tuple(every), f"the NICs and computation of {said}")


def _uplinks(part: SlowPart, fabric: Fabric, homes: Homes) -> SlowLinks:
    """The links upwards of the switches of a rack, on one rail or on all, which join no other host of the run."""
    rail = _RAIL.search(part.device)
    leaves: dict[int, set[int]] = {}
    own: set[int] = set()
    for one, other, _kind in fabric.links():
        for gpu, switch in ((one, other), (other, one)):
            if fabric.roles[gpu] == GPU and fabric.roles[switch] == SWITCH:
                leaves.setdefault(switch, set()).add(homes.server[gpu])
                if rail is None or homes.slot[gpu] == int(rail[1]):
                    own.add(switch)
    found = frozenset(leaf for leaf in own if leaves[leaf] & set(part.servers) and leaves[leaf].isdisjoint(part.others))
    return SlowLinks(found, SWITCH, (), f"the uplinks of its {counted(len(found), 'switch', 'switches')}")


def _slowed(fabric: Fabric, slowed: Sequence[tuple[SlowLinks, SlowPart]]) -> Fabric:
    """The network whose links keep the shares of their bandwidth that these parts have, and lose packets with them."""
    texts = {text: number for number, text in enumerate(fabric.texts)}
    kinds = fabric.kinds[:]
    for number, (one, other, kind) in enumerate(fabric.links()):
        ways, text = ((one, other), (other, one)), fabric.texts[kind]
        parts = [part for links, part in slowed if any(_is_one(links, fabric, *way) for way in ways)]
        left = max(prod(part.share for part in parts), LEAST_SHARE)
        if left < 1:
            text = text._replace(bandwidth=scaled(text.bandwidth, left))
        if any(part.loses for part in parts):
            text = text._replace(error_rate=max(text.error_rate, ASSUMED_LOSS, key=float))
        kinds[number] = texts.setdefault(text, len(texts))
    return fabric._replace(kinds=kinds, texts=list(texts))


def _is_one(links: SlowLinks, fabric: Fabric, near: int, far: int) -> bool:
    return near in links.nodes and fabric.roles[far] == links.role


def _slow_parts(folder: Path, mistakes: MistakeList) -> tuple[list[SlowPart], list[str]]:
    """The slow parts that the rounds of a run found, and the findings that no link of the network stands for."""
    found: dict[SlowPart, list[float]] = {}
    left: dict[str, None] = {}
    strange: dict[str, Path] = {}
    records = _records(folder, mistakes)
    nodes = [each.nodes for _path, each in sorted(records, key=lambda each: -len(each[1].nodes))]
    homes = {node.host: node.node_rank for node in reversed([*chain(*nodes)])}
    for path, record in records:
        servers = {node.host: homes[node.host] for node in record.nodes}
        for finding in record.findings:
            if reason := _not_simulated(finding):
                left[f"not simulated, since {reason}: {finding.sentence}"] = None
                continue
            for host in sorted({*finding.hosts} - {*servers}):
                strange.setdefault(host, path)
            share = 1.0 if finding.share_of_expected is None else finding.share_of_expected
            for part in _parts_of(finding, servers):
                found.setdefault(part, []).append(min(max(share, LEAST_SHARE), 1.0))
    if strange:
        which = f"{some([*strange])}, which {'is' if len(strange) == 1 else 'are'} no node of its round"
        mistakes.add(str(next(iter(strange.values()))), None, f"a finding is about {which}")
    return [part._replace(share=median(shares)) for part, shares in found.items()], list(left)


def _parts_of(finding: PartFinding, servers: Mapping[str, int]) -> Iterator[SlowPart]:
    """The rack, or the part of each host, that a finding is about; its share is for others to say."""
    together = finding.part == "rack"
    for hosts in [finding.hosts] if together else [(host,) for host in finding.hosts]:
        places = tuple(servers.get(host, -1) for host in hosts)
        others = frozenset(servers.values() if together else ()) - set(places)
        yield SlowPart(finding.part, tuple(hosts), places, others, finding.device, finding.kind == LOSSY, 1.0)


def _records(folder: Path, mistakes: MistakeList) -> list[tuple[Path, "_Round"]]:
    """The rounds of a run that can be read; of the others the first are noted, and how many more there are."""
    found, bad = list[tuple[Path, _Round]](), MistakeList()
    with bad.noted():
        for path in rounds(folder, "--what-if"):
            with bad.noted():
                found.append((path, read_record(path, _Round)))
    mistakes.mistakes += bad.mistakes[:MOST_TOLD]
    if more := len(bad.mistakes[MOST_TOLD:]):
        mistakes.add(f"--what-if {folder}", None, f"has {counted(more, 'more round')} that cannot be read")
    return found


def _not_simulated(finding: PartFinding) -> str:
    """Why a finding changes nothing in the simulation; empty if it does."""
    if finding.kind != LOSSY and finding.share_of_expected is None:
        return "no rate was measured"
    if finding.kind != LOSSY and (finding.share_of_expected or 0.0) >= 1:
        return "it is not slower than expected"
    if finding.part not in ("host", "device", "rack") or finding.device.startswith("local ranks "):
        return "it is no host's, no NIC's, no GPU's and no rack's"
    return ""


class _Node(BaseModel):
    """The fields that are read of a node of round.json."""

    host: str
    node_rank: NonNegativeInt


class _Round(BaseModel):
    """The fields that are read of round.json."""

    nodes: list[_Node]
    findings: list[PartFinding] = []
