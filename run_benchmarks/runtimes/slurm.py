"""Runs the tasks of a node in one step of Slurm's job, as the supervised process trees that they are elsewhere.

The step begins with the monitor, waits for the workload, and ends once both have ended. What else is asked of the node
(stop, wait, look) comes as short steps beside it.
"""

from __future__ import annotations

import io
from collections.abc import Callable

from run_benchmarks.errors import CommandError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.slurm.host import SlurmHost
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.runtimes.base import Bound, RunningTask, Runtime
from run_benchmarks.runtimes.process import START_SECONDS, ProcessRuntime, ProcessTree, state_folder

# Arguments: folder of the code, interpreter, state folders of monitor and workload. Input: the monitor's request.
KEEPER = r"""
cd "$1" || exit
python=$2 monitor=$3 workload=$4
export PYTHONPATH="$1" PYTHONDONTWRITEBYTECODE=1
rm -f "$workload.request" "$workload.refused"
begin() { "$python" -m training.benchmarks.driver.launch.supervise start --state "$1"; }
running() {
  pid=$(sed 's/.*"pid": \([0-9]*\).*/\1/' "$1/supervisor.json") && [ ! -e "$1/exit.json" ] && kill -0 "$pid"
}
begin "$monitor" || exit
echo ready
exec </dev/null >/dev/null 2>&1
until [ -e "$workload.request" ]; do
  running "$monitor" || exit 0
  sleep 0.1
done
begin "$workload" <"$workload.request" 2>"$workload.said" || mv "$workload.said" "$workload.refused"
rm -f "$workload.request" "$workload.said"
for state in "$workload" "$monitor"; do
  if [ -p "$state/alive" ]; then
    exec 3<>"$state/alive"
    exec 4<"$state/alive" 3>&-
    read -r _ <&4
    exec 4<&-
  else
    while running "$state"; do sleep 1; done
  fi
done
"""
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


class SlurmRuntime(ProcessRuntime):
    """As ProcessRuntime, with the tasks of a node inside one step."""

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """See Runtime.create."""
        return self._task(host, node, task, bound)

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        """See Runtime.attach."""
        return self._task(host, node, task, None)

    def _task(self, host: Host, node: NodePlan, task: Task, bound: Bound | None) -> RunningTask:
        made = _Monitor if task is node.monitor else _Workload
        return made(host, node, task, bound, self._output_bytes)


def make(warn: Callable[[str], None], output_bytes: int) -> Runtime:
    """See settings/runtime_names.py; `warn` is unused: a node refuses a plain process nothing."""
    return SlurmRuntime(output_bytes)


class _Monitor(ProcessTree):
    """The task with which the node's step begins."""

    def start(self) -> None:
        """See RunningTask.start."""
        assert isinstance(self._host, SlurmHost)
        node, python = self._node, self._task.argv[0]
        states = [state_folder(node, task) for task in (node.monitor, node.workload)]
        argv = ["sh", "-c", KEEPER, "sh", node.workdir, python, *states]
        options = (f"--job-name={node.workload.name}",)
        self._host.hold_step(argv, self.request(), seconds=START_SECONDS, options=options)


class _Workload(ProcessTree):
    """The task that the node's step waits for."""

    def wait(self, seconds: float) -> int | None:
        """See RunningTask.wait. If it failed, the state of its job decides: Slurm ends tasks by SIGTERM, too.

        Raises:
            JobOverError: its job has lost the node.
        """
        assert isinstance(self._host, SlurmHost)
        try:
            code = super().wait(seconds)
        except TaskError:  # it is gone without an exit code
            self._host.check_job()
            raise
        if code:
            self._host.check_job()
        return code

    def start(self) -> None:
        """See RunningTask.start."""
        argv = ["sh", "-c", BEGIN, "sh", self._state, f"{START_SECONDS:.0f}"]
        try:
            self._host.run(argv, stdin=io.BytesIO(self.request()), deadline=START_SECONDS + SLACK_SECONDS)
        except CommandError as error:
            raise TaskError(self._host.name, f"task {self._task.name}: {error.output.strip()}") from error
