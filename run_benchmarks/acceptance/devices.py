"""Counts the devices of hosts, for as many ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each

SECONDS = 30.0
# Arguments: patterns of device files. Prints those that are there.
SCRIPT = 'for pattern; do for file in $pattern; do if [ -e "$file" ]; then echo "$file"; fi; done; done'


def usual_devices(hosts: Mapping[str, Host], patterns: Sequence[str]) -> tuple[int | None, list[str]]:
    """The number of devices that most hosts have, of two as frequent the larger one: a host that lost one is sick; and
    a sentence on each host that has more, which so many ranks do not test.

    None: no host that answers has any.
    """

    def counted(host: Host) -> int:
        host.connect()
        argv = ["sh", "-c", SCRIPT, "sh", *patterns]
        return len(host.run(argv, deadline=SECONDS, check=False).stdout.splitlines())

    found = for_each(hosts, counted).succeeded
    counts = Counter(count for count in found.values() if count)
    usual = max(counts, key=lambda count: (counts[count], count), default=0)
    more = {host: count for host, count in found.items() if count > usual}
    untested = [f"{host}: {count - usual} of its {count} devices are not tested" for host, count in more.items()]
    return usual or None, untested
