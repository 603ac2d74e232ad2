"""Judges how GPUs joined the fabric of NVLink switches, each by itself, and hosts by the domain that they share.

A domain has one cluster UUID; a clique is the part of it whose GPUs reach each other. Source: the driver's library,
"nvmlGpuFabricInfo". An UUID of noughts is that of a fabric within one host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from vendors.health import Found

JOINED = ("Completed", "Success")
"""State and status."""
UNTOLD = ("", "N/A", "Not Supported")
ACTION = "look at the fabric manager of the host, or of the NVLink switches; then reset the GPU"
_Domain = tuple[str, str]
"""Cluster UUID and clique."""
_Gpu = tuple[str, str, str, str, str]
"""Address, state, status, clique and cluster UUID, empty where it is not told."""


def not_joined(lines: Iterable[str]) -> Iterator[Found]:
    """The findings of a host's GPUs that have not joined the fabric; a status counts once the state is completed."""
    for address, state, status, _, _ in _told(lines):
        said = ""
        if state not in ("", JOINED[0]):
            said = f"its registration with the NVLink fabric is: {state}"
            expected = "Completed: programs do not start before"
        elif state and status not in ("", JOINED[1]):
            said, expected = f"its registration with the NVLink fabric failed: {status}", JOINED[1]
        if said:
            yield f"GPU {address}", said, expected, ACTION, "failure"


def untold_in(lines: Iterable[str]) -> dict[str, None]:
    """The fabric where some GPU of a host does not tell its state, or the status of a completed registration."""
    silent = (not state or (state == JOINED[0] and not status) for _, state, status, _, _ in _told(lines))
    return {"NVLink fabric": None} if any(silent) else {}


def unlike_domains(lines: Mapping[str, Iterable[str]], fewest: int) -> Iterator[tuple[str, Found]]:
    """Hosts whose GPUs are in several cliques, in another than most hosts of their domain, or in a domain by themselves
    where most hosts share one. lines: by host, of its GPUs; hosts without any, and those with a GPU that has not
    joined, which has a finding of its own, are not missed in a domain.
    """
    told = {host: gpus for host, own in lines.items() if (gpus := list(_told(own)))}
    domains = {host: _domains(gpus) for host, gpus in told.items()}
    cliques: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for host, cluster, clique in ((host, *each) for host, found in domains.items() for each in found):
        cliques[cluster][host] = clique
    several = {host: found for host, found in domains.items() if len(found) > 1}
    for host, found in several.items():
        said = f"its GPUs are in {len(found)} of them: {', '.join(' '.join(each) for each in found[:4])}"
        yield host, ("NVLink domain", said, "one clique of one domain", ACTION, "warning")
    yield from _alone(told, domains, cliques, fewest)
    for cluster, own in cliques.items():
        yield from _unlike_cliques(cluster, {host: clique for host, clique in own.items() if host not in several})


def _unlike_cliques(cluster: str, own: Mapping[str, str]) -> Iterator[tuple[str, Found]]:
    """The hosts of a domain that are not in the clique of most; all of them where none has most. own: by host."""
    for most, count in Counter(own.values()).most_common(1):
        expected = f"{most}, as {count} of {len(own)} hosts of {cluster}"
        is_split = 2 * count <= len(own)
        for host, clique in own.items():
            if is_split:
                said = f"the {len(own)} hosts of {cluster} are in several cliques, of which none has most"
                yield host, ("NVLink domain", said, "one clique of one domain", ACTION, "warning")
            elif clique != most:
                yield host, ("clique of its NVLink domain", clique, expected, ACTION, "warning")


def _alone(
    told: Mapping[str, Sequence[_Gpu]],
    domains: Mapping[str, Sequence[_Domain]],
    hosts: Mapping[str, Collection[str]],
    fewest: int,
) -> Iterator[tuple[str, Found]]:
    """Hosts whose GPUs all joined one domain, or none, that no other shares, where most do; hosts: by its UUID."""
    sharing = {host for own in hosts.values() if len(own) > 1 for host in own}
    sound = [host for host, gpus in told.items() if all(gpu[1:3] == JOINED for gpu in gpus)]
    alone = [host for host in sound if host not in sharing and len(domains[host]) < 2]
    shared = len(sharing.intersection(sound))
    if shared > len(alone) and shared + len(alone) >= fewest:
        for host in alone:
            said = f"{domains[host][0][0]}, in which no other host is" if domains[host] else "none that it tells of"
            yield host, ("NVLink domain", said, "one that it shares, as most hosts", ACTION, "warning")


def _domains(gpus: Iterable[_Gpu]) -> Sequence[_Domain]:
    """Those of the GPUs of a host that joined one with other hosts, each once."""
    joined = ((cluster, clique) for _, state, status, clique, cluster in gpus if (state, status) == JOINED)
    return list(dict.fromkeys(each for each in joined if each[0].strip("0-")))


def _told(lines: Iterable[str]) -> Iterator[_Gpu]:
    """The fields of each GPU; a word in brackets is why one is not told, as "[Insufficient Permissions]"."""
    for line in lines:
        address, *rest = (field.strip()[:80] for field in line.split(","))
        if len(rest) == 4 and address:
            state, status, clique, cluster = ("" if each in UNTOLD or each[0] == "[" else each for each in rest)
            yield address.strip("[]"), state, status, clique, cluster
