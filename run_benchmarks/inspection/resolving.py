"""Judges how hosts resolve names: their own, and those of others, to which all hosts have to give the same answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Literal

from common.shortening import few
from vendors.health import Found

SHOWN = 4
Answers = Mapping[str, Mapping[str, frozenset[str]]]
"""By host and name the addresses that the host resolves the name to; none: it does not resolve."""
DIFFERS, UNRESOLVED = (
    "set the same in /etc/hosts or DNS everywhere",
    "look at resolv.conf and /etc/hosts, as on the others",
)


def odd_answers(answers: Answers) -> Iterator[tuple[str, Found]]:
    """Each host that does not resolve what others do, or resolves it to other addresses, or to itself.

    A name with several addresses may be answered by any of them; the host with that name knows it as it likes. One that
    most do not resolve is no fault of theirs.
    """
    by_name: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for host, own in answers.items():
        for name, told in own.items():
            if name != host:
                by_name[name][host] = _of_all(told)
    unresolved: dict[str, list[str]] = defaultdict(list)
    for name, given in by_name.items():
        if counted := Counter(each for each in given.values() if not _is_own(each)):
            without = [host for host, told in given.items() if not told]
            for host in without if 2 * len(without) <= len(given) else ():
                unresolved[host].append(name)
            yield from _others(name, given, counted.most_common(1)[0][0])
    for host, names in unresolved.items():
        yield (
            host,
            ("names", f"{few(names, SHOWN)} do not resolve", "they resolve on other hosts", UNRESOLVED, "warning"),
        )


def _others(name: str, told: Mapping[str, frozenset[str]], most: frozenset[str]) -> Iterator[tuple[str, Found]]:
    """The hosts whose answer has none of the usual addresses."""
    agreeing = sum(bool(each & most) for each in told.values())
    answers = sum(not _is_own(each) for each in told.values())
    expected = f"{_in_words(most)}, as {agreeing} of {len(told)} hosts"
    if 2 * agreeing <= answers:
        expected = f"the same everywhere: {agreeing} of {len(told)} have {_in_words(most)}"
    for host, own in told.items():
        if own and _is_own(own):
            found = f"{name} resolves to {_in_words(own)}, this host itself"
            yield host, ("names", found, expected, DIFFERS, "failure")
        elif own and not own & most:
            yield host, ("names", f"{name} resolves to {_in_words(own)}", expected, DIFFERS, "warning")


def _in_words(addresses: frozenset[str]) -> str:
    return ", ".join(sorted(addresses)[:SHOWN])


def _of_all(addresses: frozenset[str]) -> frozenset[str]:
    """Those that are the same for all hosts: an address of a link means another host behind another interface."""
    plain = frozenset(each.partition("%")[0] for each in addresses)
    return frozenset(each for each in plain if not _has(each, "is_link_local")) or plain


def _is_own(addresses: frozenset[str]) -> bool:
    """Whether there is none but of the host itself."""
    return all(_has(each, "is_loopback") for each in addresses)


def _has(address: str, what: Literal["is_loopback", "is_link_local"]) -> bool:
    try:
        return bool(getattr(ip_address(address), what))
    except ValueError:
        return False
