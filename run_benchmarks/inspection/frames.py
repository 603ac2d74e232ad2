"""Finds whose MTU is wrong where the largest frames are lost between hosts: the one that most of the losses share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from common.shortening import few
from vendors.health import Found

SHOWN = 4
ACTION = "equal the MTU of both hosts and the switches"


class _Lost(NamedTuple):
    """Frames of `mtu` bytes that did not reach a host, and the largest that did, unless it is "unknown"."""

    sender: str
    receiver: str
    network: str
    mtu: str
    most: str


def lost_frames(sent: Mapping[str, Iterable[Sequence[str]]], names: Mapping[str, str]) -> Iterator[tuple[str, Found]]:
    """Each host whose MTU or port is wrong, with the evidence. sent: by host peer, network, MTU, answer, and the
    largest frame that passes, of each that it sends to; names: of hosts, by address.

    A host with a smaller MTU loses what all others send: it is named, and not they. Where no host stands out, as behind
    a switch with a smaller MTU, the sender is.
    """
    lost = [
        _Lost(name, names.get(peer, peer), network, mtu, most)
        for name, frames in sent.items()
        for peer, network, mtu, answer, most in frames
        if answer == "lost"
    ]
    shared = _shared(lost) & {*sent, *names.values()}
    sending: dict[str, list[_Lost]] = defaultdict(list)
    receiving: dict[str, list[_Lost]] = defaultdict(list)
    for each in lost:
        if each.sender in shared or each.receiver not in shared:
            sending[each.sender].append(each)
        if each.receiver in shared:
            receiving[each.receiver].append(each)
    for host in dict.fromkeys([*sending, *receiving]):
        yield host, ("MTU", _said(sending[host], receiving[host]), "the largest frame passes", ACTION, "failure")


def _shared(lost: Sequence[_Lost]) -> set[str]:
    """The hosts with at least two partners in losses, and half as many again as their partners usually have."""
    partners: dict[str, set[str]] = defaultdict(set)
    for each in lost:
        partners[each.sender].add(each.receiver)
        partners[each.receiver].add(each.sender)
    return {
        host
        for host, own in partners.items()
        if len(own) > 1 and len(own) >= 1.5 * median(len(partners[peer]) for peer in own)
    }


def _said(own: Sequence[_Lost], others: Sequence[_Lost]) -> str:
    """Both ways in words: what the host sends, and what is sent to it."""
    said = []
    for lost, way in ((own, "do not reach {}"), (others, "do not reach it from {}")):
        for first in lost[:1]:
            hosts = [each.receiver if lost is own else each.sender for each in lost]
            most = next((each.most for each in lost if each.most.isdecimal()), None)
            smaller = f"those of {most} do" if most is not None else "small ones do"
            reached = way.format(few(hosts, SHOWN))
            said.append(f"frames of {first.mtu} bytes on {first.network} {reached}; {smaller}")
    return "; ".join(said)
