"""Slows a simulated cluster down by what a run of the benchmarks found: `network --what-if RUN_FOLDER`.

The hosts of the largest round are the servers of the topology in the order of their node ranks, a host that is in
smaller ones alone by its node rank there, or a free one if that has a host. A host that is slow as a whole has its NICs
and its computation slowed down, a NIC the link of its GPU, a local rank the NVLinks of its GPU, a rack the uplinks of
its switches: each once, by the median of the rounds that found it slow, of each round the slowest finding. What counted
errors loses packets.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, NonNegativeInt

from common.errors import MistakeList
from common.run_folder import read_record, rounds
from common.summary import JsonValue, Summary, counted
from simulation.topology.fabric import GPU, NVSWITCH, SWITCH, Fabric
from simulation.topology.homes import Homes, homes_of
from simulation.topology.plausibility import some
from simulation.topology.whatif import scaled

LEAST_SHARE = 0.001  # of its rate that a part keeps in the simulation
LOSSY, ASSUMED_LOSS = "link_errors", "0.0001"  # of packets: counters of errors tell no rate
MOST_HOSTS = 1 << 16  # of a finding
MOST_TOLD = 20  # rounds that cannot be read, and lines of what was taken over
_NIC = re.compile(r"(?:.*_)?\D*(\d+)(?:/\d+)?")  # mlx5_3, bnxt_re3, eth3; a port's own number (mlx5_3/1) is no NIC's
_PLACE = re.compile(r"\d+\D+\d")  # enp65s0f0np0: the numbers of a slot tell no NIC
_LOCAL_RANK = re.compile(r"local rank (\d+)")
_RAIL = re.compile(r"\brail (\d+)")


class Finding(BaseModel, frozen=True):
    """The fields that are read of a finding of round.json; their meaning stands in the file's description."""

    part: str
    hosts: Annotated[tuple[str, ...], Field(max_length=MOST_HOSTS)]
    device: str = ""
    kind: str
    share_of_expected: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    sentence: str = ""


class SlowPart(NamedTuple):
    """A part of a cluster by its finding; `servers` are those of its hosts, `others` of a rack its round's others."""

    part: str
    hosts: tuple[str, ...]
    servers: tuple[int, ...]
    others: frozenset[int]
    device: str


class SlowLinks(NamedTuple):
    """The place of a part in a network: the links between some nodes and the nodes of a role; ranks that compute.

    Without nodes `said` is why it has none.
    """

    nodes: frozenset[int]
    role: int
    computing: tuple[int, ...]
    said: str


Shares = Sequence[tuple[int, float]]
Findings = list[tuple[int, Finding]]
"""With the number of the round."""


class Fault(NamedTuple):
    """A fault of some links: the shares of the expected rate that rounds measured, by their numbers, and whether errors
    were counted.
    """

    links: SlowLinks
    what: str
    shares: Shares
    loses: bool


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
    homes = None if fabric is None else homes_of(fabric)
    parts, left = _slow_parts(folder, len({*homes.server}) if homes else 0, mistakes)
    if homes:
        _check_servers(f"--what-if {folder}", parts, homes, mistakes)
    if fabric is None or homes is None or len(mistakes.mistakes) > before:
        return None
    places: dict[SlowLinks, dict[SlowPart, Findings]] = {}
    notes = list[list[str]]()
    for part, findings in parts.items():
        found = _links_of(part, fabric, homes)
        if found.nodes:
            places.setdefault(found, {})[part] = findings
        else:
            notes.append([f"not simulated, since {found.said}: {_named([part])}"])
    faults = [_fault(links, its) for links, its in places.items()]
    told_of = Counter((node, each.links.role) for each in faults if each.shares for node in each.links.nodes)
    notes += [_told(fault, told_of, packets=packets) for fault in faults]
    if not parts:
        notes.append([f"{folder}: no part of the network was slower than expected"])
    return MeasuredFaults(_slowed(fabric, faults), _slowness(faults), [*left, *_first(notes, "parts")])


def _fault(links: SlowLinks, parts: Mapping[SlowPart, Findings]) -> Fault:
    """The fault of links of which several rounds, or several findings of one, tell."""
    findings = [each for its in parts.values() for each in its]
    shares = [(number, each.share_of_expected) for number, each in findings if each.share_of_expected is not None]
    return Fault(links, _named([*parts]), shares, any(each.kind == LOSSY for _round, each in findings))


def _share(shares: Iterable[tuple[int, float]]) -> float:
    """The median of the rounds, of each of which the smallest counts; 1 without any."""
    smallest: dict[int, float] = {}
    for number, share in shares:
        smallest[number] = min(share, smallest.get(number, 1.0))
    return max(median(smallest.values()), LEAST_SHARE) if smallest else 1.0


def _slowness(faults: Sequence[Fault]) -> dict[int, float]:
    """How many times as long each rank of a slow host computes."""
    found: dict[int, list[tuple[int, float]]] = {}
    for fault in faults:
        for gpu in fault.links.computing if fault.shares else ():
            found.setdefault(gpu, []).extend(fault.shares)
    return {gpu: 1 / _share(shares) for gpu, shares in found.items()}


def _named(parts: Sequence[SlowPart]) -> str:
    hosts = [*dict.fromkeys(host for part in parts for host in part.hosts)]
    devices = dict.fromkeys(part.device for part in parts if part.device)
    return " ".join((parts[0].part, *hosts[:3], *devices))


def _told(fault: Fault, told_of: Mapping[tuple[int, int], int], *, packets: bool) -> list[str]:
    """The lines that say what is taken over of a fault; `told_of` counts the faults of a node's links to a role."""
    what, said, share, links = fault.what, fault.links.said, _share(fault.shares), fault.links
    alone = all(told_of[node, links.role] == 1 for node in links.nodes)
    with_others = "" if alone else ", together with what else was found of them"
    lines = [f"{what}: {100 * share:.0f} % of the expected rate, so are {said}{with_others}"] if share < 1 else []
    if fault.loses and not packets:
        lines.append(f"not simulated, since fair rates lose nothing: {what}: errors")
    elif fault.loses:
        lines.append(f"{what}: errors, so {said} lose packets; assumed is a share of {ASSUMED_LOSS}")
    return lines


def _check_servers(place: str, parts: Iterable[SlowPart], homes: Homes, mistakes: MistakeList) -> None:
    """The network has a server for each slow host, and a GPU for each local rank."""
    gpus, others, ranks = Counter(homes.server), dict[tuple[int, str], str](), dict[str, None]()
    for part in parts:
        match = _LOCAL_RANK.fullmatch(part.device)
        for host, server in zip(part.hosts, part.servers, strict=True):
            if server >= len(gpus):
                others[server, host] = f"{host} (node rank {server})"
            elif server >= 0 and match and int(match[1]) >= gpus[server]:
                ranks[f"{part.device} of {host}, whose server has {counted(gpus[server], 'GPU')}"] = None
    if others:
        named = some([said for _place, said in sorted(others.items())])
        mistakes.add(place, None, f"the network has {counted(len(gpus), 'server')}, and none for {named}")
    if ranks:
        mistakes.add(place, None, f"the network has no GPU for {some([*ranks])}")


def _first(told: Sequence[Sequence[str]], what: str) -> list[str]:
    """The lines of the first few, and how many more there are."""
    more = len(told) - MOST_TOLD
    return [*chain(*told[:MOST_TOLD]), *([f"and {more} more such {what}"] if more > 0 else [])]


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
    if match := _NIC.fullmatch(part.device):
        gpu = every[int(match[1]) % len(every)]
        return SlowLinks(frozenset([gpu]), SWITCH, (), f"the NICs of GPU {gpu}")
    if _PLACE.search(part.device):
        return SlowLinks(frozenset(), SWITCH, (), "its name tells no number of a NIC")
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
    said = f"the uplinks of its {counted(len(found), 'switch', 'switches')}"
    return SlowLinks(found, SWITCH, (), said if found else "no switch of the network is its own")


def _slowed(fabric: Fabric, faults: Sequence[Fault]) -> Fabric:
    """The network whose links keep the shares of their bandwidth that these faults leave, and lose packets by them."""
    texts = {text: number for number, text in enumerate(fabric.texts)}
    kinds = fabric.kinds[:]
    for number, (one, other, kind) in enumerate(fabric.links()):
        ways, text = ((one, other), (other, one)), fabric.texts[kind]
        its = [fault for fault in faults if any(_is_one(fault.links, fabric, *way) for way in ways)]
        left = _share(chain(*(fault.shares for fault in its)))
        if left < 1:
            text = text._replace(bandwidth=scaled(text.bandwidth, left))
        if any(fault.loses for fault in its):
            text = text._replace(error_rate=max(text.error_rate, ASSUMED_LOSS, key=float))
        kinds[number] = texts.setdefault(text, len(texts))
    return fabric._replace(kinds=kinds, texts=list(texts))


def _is_one(links: SlowLinks, fabric: Fabric, near: int, far: int) -> bool:
    return near in links.nodes and fabric.roles[far] == links.role


def _slow_parts(folder: Path, servers: int, mistakes: MistakeList) -> tuple[dict[SlowPart, Findings], list[str]]:
    """The slow parts that the rounds of a run found, and what is said of findings that change nothing and of where
    hosts are; the network has so many servers.
    """
    found: dict[SlowPart, Findings] = {}
    left, moved = dict[str, None](), dict[str, None]()
    strange: dict[str, Path] = {}
    records = _records(folder, mistakes)
    homes, elsewhere = _server_of([record for _path, record in records], servers)
    for number, (path, record) in enumerate(records):
        own = {node.host: homes[node.host] for node in record.nodes}
        for finding in record.findings:
            if reason := _not_simulated(finding):
                left[f"not simulated, since {reason}: {finding.sentence}"] = None
                continue
            for host in sorted({*finding.hosts} - {*own}):
                strange.setdefault(host, path)
            moved |= {elsewhere[host]: None for host in finding.hosts if host in elsewhere}
            for part in _parts_of(finding, own):
                found.setdefault(part, []).append((number, finding))
    if strange:
        which = f"{some([*strange])}, which {'is' if len(strange) == 1 else 'are'} no node of its round"
        mistakes.add(str(next(iter(strange.values()))), None, f"a finding is about {which}")
    return found, [*_first([[each] for each in moved], "hosts"), *_first([[each] for each in left], "findings")]


def _server_of(records: Sequence["_Round"], servers: int) -> tuple[dict[str, int], dict[str, str]]:
    """The server of each host, and what is said of those whose node rank is that of another, in another round.

    Servers that are free go first to hosts that have findings.
    """
    ranks: dict[str, int] = {}
    slow = {host for each in records for finding in each.findings for host in finding.hosts}
    for node in chain(*(each.nodes for each in sorted(records, key=lambda each: -len(each.nodes)))):
        ranks.setdefault(node.host, node.node_rank)
    owners: dict[int, str] = {}
    for host, rank in ranks.items():
        owners.setdefault(rank, host)
    free = (server for server in range(servers) if server not in owners)
    said: dict[str, str] = {}
    for host, rank in sorted(ranks.items(), key=lambda each: each[0] not in slow):
        if (owner := owners[rank]) != host:
            ranks[host] = next(free, rank)
            shared = " with it, since the network has no other" if ranks[host] == rank else ""
            said[host] = f"{owner} had the node rank of {host} in another round: {host} is server {ranks[host]}{shared}"
    return ranks, said


def _parts_of(finding: Finding, servers: Mapping[str, int]) -> Iterator[SlowPart]:
    """The rack, or the part of each host, that a finding is about."""
    together = finding.part == "rack"
    for hosts in [finding.hosts] if together else [(host,) for host in finding.hosts]:
        places = tuple(servers.get(host, -1) for host in hosts)
        others = frozenset(servers.values() if together else ()) - set(places)
        yield SlowPart(finding.part, tuple(hosts), places, others, finding.device)


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


def _not_simulated(finding: Finding) -> str:
    """Why a finding changes nothing in the simulation; empty if it does."""
    if finding.kind != LOSSY and finding.share_of_expected is None:
        return "no rate was measured"
    if finding.kind != LOSSY and (finding.share_of_expected or 0.0) >= 1:
        return "it is not slower than expected"
    if finding.part not in ("host", "device", "rack") or finding.device.startswith("local ranks "):
        return "it is no host's, no NIC's, no GPU's and no rack's"
    if finding.kind == LOSSY and finding.device.startswith("accelerator "):
        return "these errors are on no NIC"
    return ""


class _Node(BaseModel):
    """The fields that are read of a node of round.json."""

    host: str
    node_rank: NonNegativeInt


class _Round(BaseModel):
    """The fields that are read of round.json."""

    nodes: list[_Node]
    findings: list[Finding] = []
