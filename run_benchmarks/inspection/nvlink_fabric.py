"""Judges how GPUs joined the fabric of NVLink switches, each by itself, and hosts by the domain that they share.

A domain has one cluster UUID; a clique is the part of it whose GPUs reach each other. Source: the driver's library,
"nvmlGpuFabricInfo". An UUID of noughts is that of a fabric within one host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from run_benchmarks.inspection.findings import Found
from run_benchmarks.results.host_findings import FEWEST

JOINED = ("Completed", "Success")
"""State and status."""
UNTOLD = ("", "N/A", "Not Supported")
ACTION = "look at the fabric manager of the host, or of the NVLink switches; then reset the GPU"
_Domain = tuple[str, str]
"""Cluster UUID and clique."""


def not_joined(lines: Iterable[str]) -> Iterator[Found]:
    """The findings of a host's GPUs that have not joined the fabric; a status counts once the state is completed."""
    for address, state, status, _, _ in _told(lines):
        said = ""
        if state not in ("", JOINED[0]):
            said, expected = f"is: {state}", "Completed: programs do not start before"
        elif state and status not in ("", JOINED[1]):
            said, expected = f"failed: {status}", JOINED[1]
        if said:
            yield f"GPU {address}", f"its registration with the NVLink fabric {said}", expected, ACTION, "failure"


def untold_in(lines: Iterable[str]) -> dict[str, None]:
    """The fabric where some GPU of a host does not tell its state, or the status of a completed registration."""
    silent = (not state or (state == JOINED[0] and not status) for _, state, status, _, _ in _told(lines))
    return {"NVLink fabric": None} if any(silent) else {}


def unlike_domains(lines: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, Found]]:
    """Hosts whose GPUs are in several cliques, in another than most hosts of their domain, or in a domain by themselves
    where most hosts share one. lines: by host, of its GPUs.
    """
    domains = {host: _domains(own) for host, own in lines.items()}
    for host, found in domains.items():
        if len(found) > 1:
            said = f"its GPUs are in {len(found)} of them: {', '.join(' '.join(each) for each in found[:4])}"
            yield host, ("NVLink domain", said, "one clique of one domain", ACTION, "warning")
    cliques: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for host, cluster, clique in ((host, *found[0]) for host, found in domains.items() if found):
        cliques[cluster][host] = clique
    yield from _alone(domains, {host for own in cliques.values() if len(own) > 1 for host in own})
    for cluster, own in cliques.items():
        ((most, count),) = Counter(own.values()).most_common(1)
        expected = f"{most}, as {count} of {len(own)} hosts of {cluster}"
        for host, clique in own.items():
            if clique != most:
                yield host, ("clique of its NVLink domain", clique, expected, ACTION, "warning")


def _alone(domains: Mapping[str, Sequence[_Domain]], sharing: Collection[str]) -> Iterator[tuple[str, Found]]:
    """Hosts that share their domain with none, where most do."""
    if len(domains) >= FEWEST and 2 * len(sharing) > len(domains):
        for host in (each for each in domains if each not in sharing):
            said = f"{domains[host][0][0]}, in which no other host is" if domains[host] else "none that it tells of"
            yield host, ("NVLink domain", said, "one that it shares, as most hosts", ACTION, "warning")


def _domains(lines: Iterable[str]) -> Sequence[_Domain]:
    """Those of the GPUs of a host that joined one with other hosts, each once."""
    joined = ((cluster, clique) for _, state, status, clique, cluster in _told(lines) if (state, status) == JOINED)
    return list(dict.fromkeys(each for each in joined if each[0].strip("0-")))


def _told(lines: Iterable[str]) -> Iterator[tuple[str, str, str, str, str]]:
    """Address, state, status, clique and cluster UUID of each GPU, empty where it is not told."""
    for line in lines:
        found = [field.strip().strip("[]")[:80] for field in line.split(",")]
        if len(found) == 5 and found[0]:
            address, state, status, clique, cluster = ("" if each in UNTOLD else each for each in found)
            yield address, state, status, clique, cluster
