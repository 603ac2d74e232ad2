"""Ends the tasks of a round on its hosts, keeps their output, and removes them once all is recorded."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from run_benchmarks.console.console import LOG
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.incoming.capture import LEFT_OUT
from run_benchmarks.inspection.neighbours import few
from run_benchmarks.rounds.watch import STOP_GRACE_SECONDS
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.state.context import RunningNode
from run_benchmarks.state.journal import NodeEnd

Left = dict[str, list[RunningTask]]  # by host: tasks that may still run there
STAGING = ".incoming-*"  # partial archives in the round's folder, left by a killed controller
SUPERVISE = "supervise: "  # how a line of a task's supervisor begins in its output
KEPT = ("exit_code", "error", "stopped", "lost", "heard_ms", "silent_ms", "circumstances", "look")  # of an outcome
Item = tuple[RunningNode, str, RunningTask]


def end_tasks(nodes: Mapping[str, RunningNode]) -> Left:
    """End workloads and monitors and keep their output; returns those that could not be ended.

    A host that is lost, or whose runtime does not answer, is not asked: all of its tasks are returned.
    """

    def end(item: Item) -> None:
        node, what, task = item
        output = task.output(STOP_GRACE_SECONDS)
        if what == "workload":
            node.outcome.output = output
            said = [line for line in output.splitlines() if line.startswith(SUPERVISE)]
            node.warnings += [f"{node.plan.host}: {line}" for line in few(said, "lines of its supervisor")]
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
            node.warnings.append(f"{node.plan.host}: its tasks are not removed: their runtime does not answer")
    _leave_silent(nodes, left)
    return left


def remove_tasks(nodes: Mapping[str, RunningNode], left: Left) -> None:
    """Remove all tasks except those in `left`, to which tasks that cannot be removed are added."""
    _leave_silent(nodes, left)
    for (node, what, task), error in _failed(nodes, left, lambda item: item[2].remove()):
        LOG.warning("%s %s: not removed: %s", node.plan.host, what, error)
        left.setdefault(node.plan.host, []).append(task)


def _leave_silent(nodes: Mapping[str, RunningNode], left: Left) -> None:
    """Add all tasks of hosts that are lost, or whose runtime does not answer."""
    for node in nodes.values():
        if node.lost or node.silent:
            left[node.plan.host] = [task for task in (node.workload, node.monitor) if task is not None]


def _failed(
    nodes: Mapping[str, RunningNode], left: Left, action: Callable[[Item], None]
) -> Iterable[tuple[Item, ClusterDynoError]]:
    """Run an action on every task of hosts that answer, except those in `left`, in parallel; returns the failures."""
    items: dict[str, Item] = {
        f"{node.plan.host} {what}": (node, what, task)
        for node in nodes.values()
        for what, task in (("workload", node.workload), ("monitor", node.monitor))
        if task is not None and not node.lost and not node.silent and task not in left.get(node.plan.host, [])
    }
    result = for_each(items, lambda item: item[0].persist(lambda _: action(item)))
    return [(items[key], error) for key, error in result.failed.items()]


def ends_of(nodes: Mapping[str, RunningNode]) -> dict[str, NodeEnd]:
    """The end of each node's workload, for the journal."""
    return {
        host: NodeEnd(warnings=list(node.warnings), **{name: getattr(node.outcome, name) for name in KEPT})
        for host, node in nodes.items()
    }


def restore(nodes: Mapping[str, RunningNode], ends: Mapping[str, NodeEnd]) -> None:
    """Restore what `ends_of` recorded for these nodes when their round was over."""
    for host, end in ends.items():
        if host in nodes:
            node = nodes[host]
            node.done = True
            node.warnings = list(end.warnings)
            for name in KEPT:
                setattr(node.outcome, name, getattr(end, name))


def remove_staging(folder: Path) -> None:
    """Remove partially unpacked files of a killed controller from a round's folder."""
    for path in folder.glob(STAGING):
        shutil.rmtree(path, ignore_errors=True)
