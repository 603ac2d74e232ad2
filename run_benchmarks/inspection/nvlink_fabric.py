"""Judges how GPUs joined the fabric of NVLink switches, each by itself, and hosts by the domain that they share.

A domain has one cluster UUID; a clique is the part of it whose GPUs reach each other. Source: the driver's library,
"nvmlGpuFabricInfo". An UUID of noughts is that of a fabric within one host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from run_benchmarks.inspection.findings import Found
from run_benchmarks.results.host_findings import FEWEST

JOINED = ("Completed", "Success")
"""State and status."""
UNTOLD = ("", "N/A", "Not Supported")
ACTION = "look at the fabric manager of the host, or of the NVLink switches; then reset the GPU"
_Domain = tuple[str, str]
"""Cluster UUID and clique."""


def fields_of(line: str) -> tuple[str, str, str, str, str] | None:
    """Address, state, status, clique and cluster UUID of a GPU, each empty if it is not told; None for another line."""
    found = [field.strip().strip("[]") for field in line.split(",")]
    if len(found) != 5 or not found[0]:
        return None
    address, state, status, clique, cluster = ("" if each in UNTOLD else each for each in found)
    return address, state, status, clique, cluster


def of_gpu(address: str, state: str, status: str) -> Iterator[Found]:
    """The finding of a GPU that has not joined the fabric; `status` counts once its registration is completed."""
    if state and state != JOINED[0]:
        found = f"its registration with the NVLink fabric is: {state}"
        yield f"GPU {address}", found, "Completed: programs do not start before", ACTION, "failure"
    elif state and status not in ("", JOINED[1]):
        yield (
            f"GPU {address}",
            f"its registration with the NVLink fabric failed: {status}",
            "Success",
            ACTION,
            "failure",
        )


def unlike_domains(lines: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, Found]]:
    """Hosts whose GPUs are in several cliques, in another than most hosts of their domain, or in a domain by themselves
    where most hosts share one. lines: by host, of its GPUs.
    """
    domains = {host: _domains(own) for host, own in lines.items()}
    cliques: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for host, found in domains.items():
        if len(found) > 1:
            said = f"its GPUs are in {len(found)} of them: {', '.join(' '.join(each) for each in found[:4])}"
            yield host, ("NVLink domain", said, "one clique of one domain", ACTION, "warning")
        for cluster, clique in found[:1]:
            cliques[cluster][host] = clique
    sharing = {host for own in cliques.values() if len(own) > 1 for host in own}
    is_usual = len(domains) >= FEWEST and 2 * len(sharing) > len(domains)
    for host in domains.keys() - sharing if is_usual else ():
        said = f"{domains[host][0][0]}, in which no other host is" if domains[host] else "none that it tells of"
        yield host, ("NVLink domain", said, "one that it shares, as most hosts", ACTION, "warning")
    for cluster, own in cliques.items():
        ((most, count),) = Counter(own.values()).most_common(1)
        for host, clique in own.items():
            if clique != most:
                expected = f"{most}, as {count} of {len(own)} hosts of {cluster}"
                yield host, ("clique of its NVLink domain", clique, expected, ACTION, "warning")


def _domains(lines: Iterable[str]) -> Sequence[_Domain]:
    """Those of the GPUs of a host that joined one with other hosts, each once."""
    told = [fields for line in lines if (fields := fields_of(line)) is not None]
    joined = ((cluster, clique) for _, state, status, clique, cluster in told if (state, status) == JOINED)
    return list(dict.fromkeys(each for each in joined if each[0].strip("0-")))
