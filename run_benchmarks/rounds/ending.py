"""The end of a round on its hosts: tasks end and say what they wrote, and go once all that is theirs is recorded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from run_benchmarks.console.console import LOG
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.incoming.capture import LEFT_OUT
from run_benchmarks.rounds.watch import STOP_GRACE_SECONDS
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.state.context import RunningNode
from run_benchmarks.state.journal import NodeEnd

Left = dict[str, list[RunningTask]]  # by host: what may run there still
STAGING = ".incoming-*"  # what a controller that was killed left of an archive, in the round's folder
Item = tuple[RunningNode, str, RunningTask]


def end_tasks(nodes: Mapping[str, RunningNode]) -> Left:
    """End workloads and monitors and keep what they wrote; returned are those that could not be ended.

    A host that is lost, or where what runs the tasks does not answer, is not asked: all of its tasks are left.
    """

    def end(item: Item) -> None:
        node, what, task = item
        output = task.output(STOP_GRACE_SECONDS)
        if what == "workload":
            node.outcome.output = output
            if LEFT_OUT.search(output):
                node.warnings.append(f"{node.plan.host}: output of the workload beyond MAX_OUTPUT_BYTES is left out")
        elif output.strip():
            node.warnings.append(f"{node.plan.host}: monitor: {output.strip()[-500:]}")

    left: Left = {}
    for (node, what, task), error in _failed(nodes, {}, end):
        node.warnings.append(f"{node.plan.host} {what}: not ended: {error}")
        left.setdefault(node.plan.host, []).append(task)
    for node in nodes.values():
        if node.silent:
            node.warnings.append(f"{node.plan.host}: its tasks are not removed: what runs them does not answer")
        if node.lost or node.silent:
            left[node.plan.host] = [task for task in (node.workload, node.monitor) if task is not None]
    return left


def remove_tasks(nodes: Mapping[str, RunningNode], left: Left) -> None:
    """Remove all tasks but those in `left`, to which those are added that do not go."""
    for (node, what, task), error in _failed(nodes, left, lambda item: item[2].remove()):
        LOG.warning("%s %s: not removed: %s", node.plan.host, what, error)
        left.setdefault(node.plan.host, []).append(task)


def _failed(
    nodes: Mapping[str, RunningNode], left: Left, action: Callable[[Item], None]
) -> Iterable[tuple[Item, ClusterDynoError]]:
    """Do something with every task of hosts that answer, those in `left` aside, at once; what failed."""
    items: dict[str, Item] = {
        f"{node.plan.host} {what}": (node, what, task)
        for node in nodes.values()
        for what, task in (("workload", node.workload), ("monitor", node.monitor))
        if task is not None and not node.lost and not node.silent and task not in left.get(node.plan.host, [])
    }
    return [(items[key], error) for key, error in for_each(items, action).failed.items()]


def ends_of(nodes: Mapping[str, RunningNode]) -> dict[str, NodeEnd]:
    """How each node's workload ended, for the journal."""
    return {
        host: NodeEnd(
            exit_code=node.outcome.exit_code,
            error=node.outcome.error,
            stopped=node.outcome.stopped,
            warnings=list(node.warnings),
        )
        for host, node in nodes.items()
    }


def restore(nodes: Mapping[str, RunningNode], ends: Mapping[str, NodeEnd]) -> None:
    """What `ends_of` said of these nodes when their round was over."""
    for host, end in ends.items():
        if host in nodes:
            node = nodes[host]
            node.done = True
            node.outcome.exit_code, node.outcome.error = end.exit_code, end.error
            node.outcome.stopped, node.warnings = end.stopped, list(end.warnings)


def remove_staging(folder: Path) -> None:
    """Remove what a killed controller left half unpacked in a round's folder."""
    for path in folder.glob(STAGING):
        shutil.rmtree(path, ignore_errors=True)
