"""A round that another controller began: what of its tasks was never started goes, too."""

from __future__ import annotations

from pathlib import Path

from run_benchmarks.check import HostReport
from run_benchmarks.context import RunContext
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.interruption import Interruption
from run_benchmarks.journal import RoundStarted
from run_benchmarks.plan import NodePlan, Task
from run_benchmarks.preparation import prepare
from run_benchmarks.round import Round
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.runtimes.process import ProcessRuntime
from tests.run_benchmarks.conftest import Load


class Created:
    """A task that was created and never started."""

    def __init__(self, name: str, left: set[str]) -> None:
        self._name, self._left = name, left

    def start(self) -> None:
        raise AssertionError("nobody asked for a start")

    def exists(self) -> bool:
        return False

    def trace(self) -> None:
        raise AssertionError("it has no stacks")

    def wait(self, seconds: float) -> int | None:
        raise AssertionError("it never ends")

    def stop(self, grace: float) -> None:
        """Nothing of it runs."""

    def finish(self, grace: float) -> str:
        self._left.remove(self._name)
        return ""


class Runtime(ProcessRuntime):
    """Knows the tasks in `left`."""

    def __init__(self, left: set[str]) -> None:
        self._left = left

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        return Created(task.name, self._left)


def test_tasks_that_were_never_started_are_removed_before_the_round_is_run_again(load: Load, tmp_path: Path) -> None:
    plan = prepare(load(), "run20261121191924").plan
    case = plan.cases[0]
    left = {task.name for node in case.rounds[0].nodes for task in (node.workload, node.monitor)}
    context = RunContext(
        plan=plan,
        hosts={"localhost": LocalHost("localhost")},
        reports={"localhost": HostReport(host="localhost")},
        runtime=Runtime(left),
        image_ids={},
        result_dir=tmp_path,
        interruption=Interruption("clean"),
        link_limit=5.0,
    )
    started = RoundStarted(case=case.name, round=1, attempt=1, master_port=29500, hosts=["localhost"])
    assert len(left) == 2
    assert Round(context, case, case.rounds[0], on_start=lambda _: None).resume(started) is None
    assert left == set()
