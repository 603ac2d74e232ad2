"""Turns symptoms into findings: one for each bad part, the widest part that explains them, with cause and action.

Devices that are bad on most rails of a host are a bad host, on most hosts of a rail a bad rail. Hosts that are bad
alike and make up most of a rack are a bad rack: what they share is its switch.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from common.shortening import few
from protocol.finding import FindingPart, PartFinding
from training.benchmarks.network.patterns.tiers import Tiers
from training.benchmarks.network.slow_parts.figures import Figure, Symptom
from training.benchmarks.network.slow_parts.findings import FaultKind, worded
from training.benchmarks.network.slow_parts.readings import Readings, end_of

KINDS: dict[str, FindingPart] = {
    "pairs": "link",
    "rail_pairs": "link",
    "each": "host",
    "rail": "rail",
    "k_batch": "batch",
    "halves": "half",
    "across": "pair",
}
_CAUSES = {
    "stalls": "packet loss, or a host that makes no progress",
    "latency": "a late link: cable, port, or interrupts and power saving of the host",
    "bandwidth": "NIC, cable or PCIe",
}
_AT_TIMES = "foreign load, a flapping link, throttling, or a link that drops packets"
_PATH_CAUSES = {"stalls": "packet loss on the path between them"}
_PATH_CAUSE = "the path between them"
_MEANING = {
    "each": "alone, so memory, NVLink or PCIe of the host, not the network",
    "rail": "on all hosts, so the rail's NICs or its leaf switch",
    "rack": "what they share: its switch, or the uplinks of it",
    "k_batch": "a host or a link among them",
    "halves": "search on in this half",
    "across": "one of the two hosts or the path across the cut",
}
_GROUP_ACTION = "measure the pairs of these hosts to find the host or the link"
_ACTIONS: dict[FindingPart, str] = {
    "host": "take the host out of service, and check NIC, cable, PCIe and foreign load",
    "device": "take the host out of service, and check this NIC, its cable, switch port and PCIe slot",
    "link": "keep both hosts, and check the switch ports, cables and routes between them",
    "pair": "measure both hosts against others to find which of them, or the path, it is",
    "rail": "check the switch of the rail",
    "rack": "keep the hosts, and check the rack's switch, its uplinks, and power and cooling of the rack",
    "batch": _GROUP_ACTION,
    "half": _GROUP_ACTION,
}
RAIL = "rail "
# The share of a host's rails, or of a rail's hosts, that makes one bad part of many bad devices.
_MOST = 0.75
# Fewer bad hosts of a rack are each bad by themselves.
_LEAST_OF_A_RACK = 3
# Links that may be named alone, by host: more are a property of the fabric, such as routes that share a wire.
_LINKS_PER_HOST = 0.125
_MIN_LINKS = 2
_LINKS_SHOWN = 5
# So many named links with a host in common are said to have one.
_LINKS_OF_A_HOST = 3
# Hosts towards which a host that is bad itself may happen not to be so.
_SPARED = 2
ONE_WAY = "one way"


class Subject(NamedTuple):
    """A bad part: its kind, the node ranks of its hosts, the name of its device or group, and in which direction.

    `side` is empty if it is bad in both directions, or if they were not told apart.
    """

    part: FindingPart
    ranks: tuple[int, ...]
    device: str
    side: str = ""

    @property
    def label(self) -> str:
        """Its device or group, and its direction."""
        return f"{self.device} {self.side}".strip()


def blamed(
    part: str, symptoms: Sequence[Symptom], figure: Figure, names: Mapping[int, str], tiers: Tiers
) -> dict[Subject, list[Symptom]]:
    """The symptoms of each subject in a part of a pattern, without what a named host or rack explains."""
    readings, kind = figure.readings, KINDS[part]
    one_way = ONE_WAY if kind == "link" and readings.is_one_way else ""
    found: dict[Subject, list[Symptom]] = {}
    rails_of = Counter(block[:2] for block in {each.block for each in symptoms} if block is not None)
    for each in symptoms:
        if each.block is not None:
            is_whole = rails_of[each.block[:2]] >= _MOST * len(set(readings.rails))
            subject = _block(each.block, tiers, is_whole=is_whole)
        elif each.host >= 0:
            rank, rail, side = end_of(each.host)
            subject = Subject("host" if rail < 0 else "device", (rank,), _on_rail(rail), side)
        else:
            has_name = kind not in ("host", "link", "pair")
            device = readings.label(each.place, names) if has_name else _on_rail(readings.rails[each.place])
            subject = Subject(kind, readings.members[each.place], device, one_way)
        own = found.setdefault(subject, [])
        # A rack or a host may be bad in several classes of pairs: one of them tells it.
        if (each.block is None and each.host < 0) or each.name not in _names(own):
            own.append(each)
    found = _both_ways(found)
    if part == "rail_pairs":
        found = _widest(found, figure)
    return _without_echoes(_with_racks(found, tiers))


def _on_rail(rail: int) -> str:
    return "" if rail < 0 else f"{RAIL}{rail}"


def _names(symptoms: Iterable[Symptom]) -> set[str]:
    return {each.name for each in symptoms}


def _both_ways(found: dict[Subject, list[Symptom]]) -> dict[Subject, list[Symptom]]:
    """Make one host, device or link of what is bad in both directions."""
    ways = Counter((subject.part, frozenset(subject.ranks), subject.device) for subject in found)
    whole = {
        subject: Subject(subject.part, tuple(sorted(subject.ranks)), subject.device)
        for subject in found
        if subject.side and ways[subject.part, frozenset(subject.ranks), subject.device] > 1
    }
    return _joined(found, whole)


def _joined(
    found: Mapping[Subject, Sequence[Symptom]], wider: Mapping[Subject, Subject]
) -> dict[Subject, list[Symptom]]:
    """The symptoms by the wider subject of each, where it has one: one of each name."""
    result: dict[Subject, list[Symptom]] = {}
    for subject, symptoms in found.items():
        own = result.setdefault(wider.get(subject, subject), [])
        own += [each for each in symptoms if each.name not in _names(own)]
    return result


def told_links(
    subjects: Mapping[Subject, Sequence[Symptom]], readings: Readings, names: Mapping[int, str]
) -> tuple[set[Subject], str]:
    """The links that are named, of those that were measured, and what is to be said of them all.

    None are, in whatever figure, if there are too many for bad links.
    """
    links = [subject for subject in subjects if subject.part == "link"]
    shown = few([_path(link, names) for link in links], _LINKS_SHOWN)
    if len(links) > max(_MIN_LINKS, _LINKS_PER_HOST * len(names) * len(set(readings.rails))):
        figures = [name for name in _CAUSES if any(each.name == name for link in links for each in subjects[link])]
        return set(), (
            f"{len(links)} of {len(readings)} pairs have a bad {' or '.join(figures)} that their hosts do not have with"
            " others: too many for bad links; routes that share a wire, an overloaded fabric, or one whose tiers a"
            f" topology must tell ({shown})"
        )
    ends = Counter(rank for link in links for rank in link.ranks)
    common = [names[rank] for rank, count in ends.most_common() if count >= _LINKS_OF_A_HOST]
    remark = f"{len(links)} paths are bad alone, with an end in common: {', '.join(common)}"
    return set(links), f"{remark}; too few of its pairs to blame the host" if common else ""


def doubtful_hosts(subjects: Mapping[Subject, Sequence[Symptom]], names: Mapping[int, str]) -> tuple[set[Subject], str]:
    """The hosts that are bad in some of their pairs alone, where racks are not known, and what is said of them.

    A bad host is bad towards everybody; one whose rack has bad uplinks is so towards those of other racks. Racks of
    mixed kinds of hosts are not learnt, and too many pairs are bad then.
    """
    hosts = [subject for subject in subjects if subject.part == "host"]
    found = set()
    for host in hosts:
        towards = _towards(subjects[host])
        spared = set(names) - towards - {rank for each in hosts for rank in each.ranks}
        if towards and len(spared) >= _SPARED:
            found.add(host)
    told = ", ".join(_path(host, names) for host in hosts if host in found)
    why = f"{told}: bad towards some hosts alone: the uplinks of its rack, if not itself; give a topology"
    return found, why if found else ""


def _path(link: Subject, names: Mapping[int, str]) -> str:
    return f"{'-'.join(names[rank] for rank in link.ranks)} {link.label}".rstrip()


def _block(block: tuple[int, int, int], tiers: Tiers, *, is_whole: bool) -> Subject:
    """The rack, or group of racks, of a symptom; with its rail unless the whole of it is bad."""
    tier, number, rail = block
    label = tiers.name(tier, number) + f" {RAIL}{rail}" * (not is_whole)
    return Subject("rack", tiers.members(tier)[number], label)


def _with_racks(found: dict[Subject, list[Symptom]], tiers: Tiers) -> dict[Subject, list[Symptom]]:
    """Make one rack, or group of racks, of the hosts or of the devices on a rail that are bad alike."""
    everybody = {host for block in tiers.blocks for host in block}
    for tier in reversed(range(len(tiers.blocks))):
        for number, members in tiers.members(tier).items():
            if len(members) == len(everybody):
                continue
            for device in dict.fromkeys(subject.label for subject in _of_parts(found, "host", "device")):
                ends = _of_parts(found, "host", "device")
                own = [each for each in ends if each.label == device and each.ranks[0] in members]
                if len(own) < max(_LEAST_OF_A_RACK, _MOST * len(members)):
                    continue
                if alike := _alike([found[subject] for subject in own], len(members)):
                    rack = Subject("rack", members, f"{tiers.name(tier, number)} {device}".rstrip())
                    found = _as_rack(found, rack, own, alike)
    return found


def _of_parts(found: Iterable[Subject], *parts: FindingPart) -> list[Subject]:
    return [subject for subject in found if subject.part in parts]


def _as_rack(
    found: Mapping[Subject, list[Symptom]], rack: Subject, own: Sequence[Subject], alike: Sequence[Symptom]
) -> dict[Subject, list[Symptom]]:
    """Put a rack with the symptoms that its hosts share, after those it has, in the place of these hosts."""
    kept = {subject: each for subject, each in found.items() if subject not in own}
    known = kept.pop(rack, [])
    names = _names(known)
    return {rack: known + [each for each in alike if each.name not in names], **kept}


def _alike(symptoms: Sequence[Sequence[Symptom]], hosts: int) -> list[Symptom]:
    """For each symptom that most of a rack's hosts have, that of the host in the middle, told as the rack's."""
    result = []
    for name in dict.fromkeys(each.name for own in symptoms for each in own):
        having = [each for own in symptoms for each in [next((s for s in own if s.name == name), None)] if each]
        if len(having) >= max(_LEAST_OF_A_RACK, _MOST * hosts):
            middle = sorted(having, key=lambda each: each.share or 0.0)[len(having) // 2]
            text = f"{len(having)} of its {hosts} hosts are bad alike, the one in the middle: {middle.text}"
            result.append(replace(middle, text=text))
    return result


def _widest(found: dict[Subject, list[Symptom]], figure: Figure) -> dict[Subject, list[Symptom]]:
    """Make one host of its devices, one rail of the devices on it, one link of its rails, where most are bad."""
    rails = len(set(figure.readings.rails))
    ranks = tuple(sorted({rank for members in figure.readings.members for rank in members}))
    devices = _of_parts(found, "device")
    wider: dict[Subject, Subject] = {}
    for own in _grouped(devices, lambda subject: (subject.ranks, subject.side)):
        if rails > 1 and len(own) >= _MOST * rails:
            wider |= dict.fromkeys(own, own[0]._replace(part="host", device=""))
    left = [subject for subject in devices if subject not in wider]
    for own in _grouped(left, lambda subject: (subject.device, subject.side)):
        if len(own) >= _MOST * len(ranks):
            wider |= dict.fromkeys(own, own[0]._replace(part="rail", ranks=ranks))
    for own in _grouped(_of_parts(found, "link"), lambda subject: (subject.ranks, subject.side)):
        if len(own) >= _MOST * rails:
            wider |= dict.fromkeys(own, own[0]._replace(device=""))
    return _joined(found, wider)


def _grouped(subjects: Iterable[Subject], key: Callable[[Subject], Hashable]) -> Iterable[list[Subject]]:
    """The subjects that have a key in common."""
    groups: dict[Hashable, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(key(subject), []).append(subject)
    return groups.values()


def _without_echoes(found: dict[Subject, list[Symptom]]) -> dict[Subject, list[Symptom]]:
    """Leave out what a named host or rack explains.

    Those are its links with another symptom than its own, all of them if it is bad at times; the paths that leave a
    named rack, which are the slower the more there are at once; and the hosts that are bad towards it alone.
    """
    ways, at_times = _ways_of_hosts(found)
    racks = [subject for subject in found if subject.part == "rack"]
    result: dict[Subject, list[Symptom]] = {}
    for subject, symptoms in found.items():
        own = symptoms
        if subject.part in ("link", "pair"):
            is_explained = not at_times.isdisjoint(subject.ranks) or any(_leaves(subject, rack) for rack in racks)
            known = [ways[rank] for rank in subject.ranks if rank in ways]
            own = [] if is_explained else _unexplained(symptoms, known)
        elif subject.part in ("host", "device") and _is_towards_one(symptoms, racks):
            own = []
        if own:
            result[subject] = own
    return result


def _towards(symptoms: Sequence[Symptom]) -> set[int]:
    """The node ranks at the other ends of all pairs in which a host is bad all the time."""
    return {rank for each in symptoms for rank in each.towards}


def _is_towards_one(symptoms: Sequence[Symptom], racks: Sequence[Subject]) -> bool:
    """Whether all symptoms of a host or device are those towards one of the racks."""
    towards = _towards(symptoms)
    return bool(towards) and any(towards <= set(rack.ranks) for rack in racks)


def _leaves(link: Subject, rack: Subject) -> bool:
    """Whether a path has one end in a rack, on a rail of it that is bad."""
    on_it = RAIL not in rack.device or rack.device.endswith(f" {link.device}")
    return on_it and len(set(link.ranks) & set(rack.ranks)) == 1


def _ways_of_hosts(found: Mapping[Subject, Sequence[Symptom]]) -> tuple[dict[int, set[str]], set[int]]:
    """The symptoms of each rank that is a named host or in a named rack, and the ranks that are bad at times."""
    ways: dict[int, set[str]] = {}
    at_times: set[int] = set()
    for subject, symptoms in found.items():
        if subject.part == "host" or (subject.part == "rack" and RAIL not in subject.device):
            for rank in subject.ranks:
                ways.setdefault(rank, set()).update(_names(symptoms))
            if any(each.kind == "intermittent" for each in symptoms):
                at_times.update(subject.ranks)
    return ways, at_times


def _unexplained(symptoms: Sequence[Symptom], known: Sequence[set[str]]) -> list[Symptom]:
    """The symptoms of a path that one of its named hosts shows, too; all of them where neither is named."""
    return [each for each in symptoms if not known or any(each.name in names for names in known)]


def finding_of(
    part: str,
    subject: Subject,
    symptoms: Sequence[Symptom],
    names: Mapping[int, str],
    devices: Mapping[tuple[int, int], str],
) -> PartFinding:
    """One finding for all symptoms of one subject in a part of a pattern; `devices` as for `analyse_scan`."""
    if subject.part == "device":
        known = devices.get((subject.ranks[0], int(subject.device.removeprefix(RAIL))), "")
        subject = subject._replace(device=known or subject.device)
    cause = _cause(part, subject, _kind(symptoms), symptoms[0].name)
    return finding(subject.part, subject.ranks, subject.label, symptoms, names, (cause, _ACTIONS[subject.part]))


def finding(
    part: FindingPart,
    ranks: tuple[int, ...],
    device: str,
    symptoms: Sequence[Symptom],
    names: Mapping[int, str],
    because: tuple[str, str],
) -> PartFinding:
    """One finding for all symptoms of a bad part; `because`: its cause and what to do."""
    found = PartFinding(
        part=part,
        hosts=tuple(names[rank] for rank in ranks),
        node_ranks=ranks,
        device=device,
        kind=_kind(symptoms),
        symptoms=tuple(each.name for each in symptoms),
        share_of_expected=min((each.share for each in symptoms if each.share is not None), default=None),
        p_value=min(each.p_value for each in symptoms),
        evidence="; ".join(each.text for each in symptoms),
        cause=because[0],
        suggested_action=because[1],
    )
    return worded(found)


def _kind(symptoms: Sequence[Symptom]) -> FaultKind:
    """Lost packets make some operations slow and others stall: that they stall says more."""
    order = ("constant", "stalls", "intermittent")
    return min((each.kind for each in symptoms), key=order.index)


def _cause(part: str, subject: Subject, kind: str, name: str) -> str:
    if subject.part == "link":
        return _PATH_CAUSES.get(name, _PATH_CAUSE)
    if subject.part in ("rail", "rack"):
        return _MEANING[subject.part]
    if part in ("pairs", "rail_pairs"):
        return _AT_TIMES if kind == "intermittent" else _CAUSES[name]
    return _MEANING[part]
