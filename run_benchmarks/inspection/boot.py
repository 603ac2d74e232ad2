"""Asks a host which of its boots this is, by the id that its kernel draws at each (random(4))."""

from __future__ import annotations

import re

from run_benchmarks.hosts.base import Host

SECONDS = 10.0
ID = re.compile(r"boot ([0-9a-f-]{36})")
# Prints `boot <id>`; nothing where the kernel tells none.
BOOT = "if read -r boot </proc/sys/kernel/random/boot_id; then echo boot $boot; fi 2>/dev/null"


def boot_in(answer: list[str]) -> str:
    """The id in the lines that BOOT printed; "" without one."""
    return next((found[1] for line in answer if (found := ID.fullmatch(line))), "")


def boot_of(host: Host) -> str:
    """The id of a host's present boot; "" if it tells none.

    Raises:
        HostError: the host does not answer.
    """
    return boot_in(host.run(["sh", "-c", BOOT], deadline=SECONDS).stdout.splitlines())
