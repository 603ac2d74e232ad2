"""Shows on which switches the hosts of a planned case hang, as far as its topology file is readable here."""

from pathlib import Path
from typing import Any

from run_benchmarks.hosts.slurm.node_names import folded
from run_benchmarks.settings.launcher_names import UNNAMED
from training.benchmarks.network.patterns.topology import HostWidth, TopologyError, read_topology

TIER_COLUMNS = ("tier", "block", "hosts")


def tier_rows(case: dict[str, Any]) -> list[tuple[str, str, str]]:
    """TIER_COLUMNS of each block of hosts, for a case of a masked plan; empty if it names no topology.

    The file that counts is that of the first host; a row says so where this machine has none.
    """
    path = case["config"].get("topology")
    if path is None:
        return []
    hosts = case["allowed_hosts"][: case["nnodes"]]
    if hosts[0].startswith(UNNAMED[0]):
        return [("?", "decided once Slurm gives the hosts", "")]
    try:
        found = read_topology(Path(path), [HostWidth(name=name, ranks=case["nproc"]) for name in hosts]).tiers
    except TopologyError as error:
        return [("?", f"decided on the first host; here: {error}", "")]
    rows = []
    for tier, blocks in enumerate(found.blocks if found is not None else (), start=1):
        names = found.names[tier - 1] if found is not None else {}
        for number in sorted(set(blocks.values())):
            members = folded(hosts[rank] for rank, block in blocks.items() if block == number)
            rows.append((str(tier), names.get(number, ""), members))
    return rows or [("1", "all hosts hang together", folded(hosts))]
