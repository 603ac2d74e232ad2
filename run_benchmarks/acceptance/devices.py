"""Counts the devices of hosts, for as many ranks, and those for which there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection.findings import HostReport

SECONDS = 30.0
# Arguments: patterns of device files. Prints those that are there.
SCRIPT = 'for pattern; do for file in $pattern; do if [ -e "$file" ]; then echo "$file"; fi; done; done'


def usual_devices(hosts: Mapping[str, Host], patterns: Sequence[str]) -> int | None:
    """The number of devices that most hosts have, of two as frequent the larger one: a host that lost one is sick.

    None: no host that answers has any.
    """

    def counted(host: Host) -> int:
        host.connect()
        argv = ["sh", "-c", SCRIPT, "sh", *patterns]
        return len(host.run(argv, deadline=SECONDS, check=False).stdout.splitlines())

    found = for_each(hosts, counted).succeeded
    counts = Counter(count for count in found.values() if count)
    return max(counts, key=lambda count: (counts[count], count), default=None)


def untested_devices(reports: Mapping[str, HostReport], nproc: int) -> list[str]:
    """A sentence on each host with more devices than ranks, of hosts that told their facts."""
    found = {host: len(report.facts.devices) for host, report in reports.items() if report.facts is not None}
    more = {host: count for host, count in found.items() if count > nproc}
    return [f"{host}: {count - nproc} of its {count} devices are not tested" for host, count in more.items()]
