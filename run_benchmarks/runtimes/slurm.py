"""Runs the tasks of a node in one step of Slurm's job, as the supervised process trees that they are elsewhere.

The step (driver/launch/step.py) begins with the monitor, waits for the workload, ends once both have ended, and takes
both along when it is ended. What else is asked of the node (stop, wait, look) comes as short steps beside it.
"""

import io
from collections.abc import Callable

from protocol.circumstance import Circumstance, CircumstanceKind
from run_benchmarks.errors import CommandError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.slurm.host import SlurmHost
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.runtimes.base import Bound, RunningTask, Runtime
from run_benchmarks.runtimes.process import START_SECONDS, ProcessRuntime, ProcessTree, state_folder

# Arguments: the workload's state folder, seconds. Input: its request.
BEGIN = r"""
umask 077
cat >"$1.given" && mv "$1.given" "$1.request" || exit
tries=$(($2 * 20))
until [ -e "$1/supervisor.json" ]; do
  [ ! -e "$1.refused" ] || { cat "$1.refused" >&2; exit 1; }
  tries=$((tries - 1))
  [ "$tries" -gt 0 ] || { echo "the step that holds this node's tasks does not answer" >&2; exit 1; }
  sleep 0.05
done
"""
SLACK_SECONDS = 10.0
GONE = Circumstance(kind=CircumstanceKind.TASK, words="no supervisor")


class SlurmRuntime(ProcessRuntime):
    """As ProcessRuntime, with the tasks of a node inside one step."""

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        return self._task(host, node, task, bound)

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        return self._task(host, node, task, None)

    def _task(self, host: Host, node: NodePlan, task: Task, bound: Bound | None) -> RunningTask:
        made = _Monitor if task is node.monitor else _Workload
        return made(host, node, task, bound, self._output_bytes)


def make(warn: Callable[[str], None], output_bytes: int) -> Runtime:
    """The runtime of Slurm's steps; `warn` is unused: a node refuses a plain process nothing."""
    return SlurmRuntime(output_bytes)


class _Monitor(ProcessTree):
    """The task with which the node's step begins."""

    def start(self) -> None:
        assert isinstance(self._host, SlurmHost)
        node = self._node
        states = ("--monitor", state_folder(node, node.monitor), "--workload", state_folder(node, node.workload))
        argv = self.python_argv("-m", "training.benchmarks.driver.launch.step", *states)
        options = (f"--job-name={node.workload.name}",)
        self._host.hold_step(argv, self.request(), seconds=START_SECONDS, options=options)


class _Workload(ProcessTree):
    """The task that the node's step waits for."""

    def exists(self) -> bool:
        """Whether it is there; one that ended without saying how was taken along by Slurm with its step."""
        found = self.trouble() if super().exists() else GONE
        return found is None or found.kind is not GONE.kind

    def wait(self, seconds: float) -> int | None:
        """Its exit code, None after `seconds`. If it failed, job and step say why: Slurm ends tasks by SIGTERM, too."""
        assert isinstance(self._host, SlurmHost)
        try:
            code = super().wait(seconds)
        except TaskError:
            self._host.check_job(self._task.name)
            raise
        if code:
            self._host.check_job(self._task.name)
        return code

    def start(self) -> None:
        argv = ["sh", "-c", BEGIN, "sh", self._state, f"{START_SECONDS:.0f}"]
        try:
            self._host.run(argv, stdin=io.BytesIO(self.request()), deadline=START_SECONDS + SLACK_SECONDS)
        except CommandError as error:
            raise TaskError(self._host.name, f"task {self._task.name}: {error.output.strip()}") from error
