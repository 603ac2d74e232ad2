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
# "empty" as the third argument leaves folders with files and prints them.
SCRIPT = r"""
[ -d "$1" ] || exit 0
if [ "$3" = empty ]; then
    for folder in "$1"/*/*/"$2"_noderank[0-9]*; do
        [ -e "$folder" ] && find "$folder" ! -type d -exec sh -c 'echo "$1"' sh "$folder" \; -quit
    done
else
    rm -rf "$1"/*/*/"$2"_noderank[0-9]* || exit
fi
rm -f "$1"/*/*.json || exit
find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null
true
"""


def remove_folders(hosts: Mapping[str, Host], root: str) -> FleetResult[None]:
    """Remove these hosts' own folders below a run's folder, and that folder once it is empty."""

    def remove(host: Host) -> None:
        host.run(["sh", "-c", SCRIPT, "sh", root, host.name, "all"], deadline=SECONDS)

    return for_each(hosts, remove)


def remove_collected(hosts: Mapping[str, Host], plan: Plan, nodes: Iterable[NodeRecord], clean: str) -> None:
    """Remove the run's folders from the hosts whose files were all collected; log where they remain.

    `nodes`: the nodes of all attempts at all rounds; `clean`: the command that removes the rest.
    """
    nodes = list(nodes)
    missed = {node.host for node in nodes if node.incomplete}
    # Tasks that were never started leave no files, and nothing to collect.
    without = {node.host for node in nodes if not node.files} - missed
    left = missed | _not_empty({name: hosts[name] for name in sorted(without & hosts.keys())}, plan.log_root_host)
    for name in sorted(left & hosts.keys()):
        LOG.warning(
            "%s: not everything could be collected; the rest stays in %s until `%s`",
            name,
            plan.log_root_host,
            clean,
        )
    done = {name: host for name, host in hosts.items() if name not in missed | without}
    for error in remove_folders(done, plan.log_root_host).failed.values():
        LOG.warning("%s", error)


def _not_empty(hosts: Mapping[str, Host], root: str) -> set[str]:
    """Remove these hosts' own folders that hold no file; returns the hosts on which others remain, or that failed."""

    def remove(host: Host) -> bool:
        argv = ["sh", "-c", SCRIPT, "sh", root, host.name, "empty"]
        return host.run(argv, deadline=SECONDS).stdout != ""

    result = for_each(hosts, remove)
    return {name for name, some in result.succeeded.items() if some} | set(result.failed)
