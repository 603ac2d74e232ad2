"""A round that is run once more: the same plan under names of its own, so that nothing of an earlier attempt is met."""

from __future__ import annotations

from run_benchmarks.plan.plan import NodePlan, RoundPlan, Task


def folder_name(index: int, attempt: int) -> str:
    """round1, and for further attempts round1_try2, round1_try3."""
    return f"round{index}" if attempt == 1 else f"round{index}_try{attempt}"


def attempt_plan(plan: RoundPlan, attempt: int) -> RoundPlan:
    """The plan of attempt number `attempt` (from 1)."""
    if attempt == 1:
        return plan
    return plan.model_copy(update={"nodes": tuple(_node(node, plan.index, attempt) for node in plan.nodes)})


def _node(node: NodePlan, index: int, attempt: int) -> NodePlan:
    old = node.log_dir_host
    parent, name = old.rsplit("/", 1)
    new = f"{parent.rsplit('/', 1)[0]}/{folder_name(index, attempt)}/{name}"

    def task(task: Task) -> Task:
        # With the process runtime the folder stands in the command, too.
        argv = tuple(new + word.removeprefix(old) if f"{word}/".startswith(f"{old}/") else word for word in task.argv)
        return task.model_copy(update={"name": f"{task.name}-try{attempt}", "argv": argv})

    mounts = tuple(m.model_copy(update={"source": new}) if m.source == old else m for m in node.mounts)
    return node.model_copy(
        update={
            "log_dir_host": new,
            "mounts": mounts,
            "workload": task(node.workload),
            "monitor": task(node.monitor),
        }
    )
