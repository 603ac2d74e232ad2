"""Removes a run's folders from the hosts once everything in them was collected; each host removes only its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import FleetResult, for_each
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.records import NodeRecord

SECONDS = 60.0
# Arguments: the run's folder, the host's name in the plan. A shared home holds all hosts' folders: the others must
# not remove what could not be collected from a lost host. The last host removes empty folders.
# The settings of the cases are always removed: no rank reads them any more, and they may hold secrets.
SCRIPT = r"""
[ -d "$1" ] || exit 0
rm -rf "$1"/*/*/"$2"_noderank[0-9]* || exit
rm -f "$1"/*/*.json || exit
find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null
true
"""


def remove_folders(hosts: Mapping[str, Host], root: str) -> FleetResult[None]:
    """Remove these hosts' own folders below a run's folder, and that folder once it is empty."""

    def remove(host: Host) -> None:
        host.run(["sh", "-c", SCRIPT, "sh", root, host.name], deadline=SECONDS)

    return for_each(hosts, remove)


def remove_collected(hosts: Mapping[str, Host], plan: Plan, nodes: Iterable[NodeRecord], clean: str) -> None:
    """Remove the run's folders from the hosts whose files were all collected; log where they remain.

    `nodes`: the nodes of all attempts at all rounds; `clean`: the command that removes the rest.
    """
    missed = {node.host for node in nodes if node.incomplete or not node.files}
    for name in sorted(missed & hosts.keys()):
        LOG.warning(
            "%s: not everything could be collected; the rest stays in %s until `%s`",
            name,
            plan.log_root_host,
            clean,
        )
    result = remove_folders({name: host for name, host in hosts.items() if name not in missed}, plan.log_root_host)
    for error in result.failed.values():
        LOG.warning("%s", error)
