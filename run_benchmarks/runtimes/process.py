"""Tasks as supervised process trees on hosts without Docker; the host's Python runs them."""

from __future__ import annotations

import io
import json

from run_benchmarks.errors import CommandError, DeadlineError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.plan import MASTER_PORT_SLOT, NodePlan, Task
from run_benchmarks.runtimes.base import Bound, RunningTask

SUPERVISE = ("-m", "training.benchmarks.driver.supervise")
START_SECONDS = 30.0
# Ends with the exit code's file or with the supervisor, whichever comes first; a reused pid cannot fool it for long.
WAIT = """
cd "$1" || exit 1
pid=$(sed 's/.*"pid": \\([0-9]*\\).*/\\1/' supervisor.json)
while [ ! -e exit.json ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
[ -e exit.json ] || sleep 0.2
cat exit.json
"""


class ProcessRuntime:
    """Starts tasks under training.benchmarks.driver.supervise."""

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """See Runtime.create; nothing happens on the host before the start."""
        return _Tree(host, node, task, bound)


class _Tree:
    def __init__(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> None:
        self._host, self._node, self._task, self._bound = host, node, task, bound
        # Beside the node's folder, not in it: what the supervisor writes is not collected.
        self._state = f"{node.log_dir_host}.{task.labels['org.clusterdyno.task']}"

    def _supervise(self, *words: str, stdin: bytes = b"", deadline: float) -> None:
        argv = ["env", f"PYTHONPATH={self._node.workdir}", self._task.argv[0], *SUPERVISE, *words, "--state", self._state]
        try:
            self._host.run(argv, stdin=io.BytesIO(stdin), deadline=deadline)
        except CommandError as error:
            raise TaskError(self._host.name, f"task {self._task.name}: {error}") from error

    def start(self) -> None:
        """See RunningTask.start."""
        facts = {f"CLUSTERDYNO_SYS_{key.upper()}": value for key, value in self._bound.facts.items()}
        request = {
            "argv": [word.replace(MASTER_PORT_SLOT, str(self._bound.master_port)) for word in self._task.argv],
            "environment": {**facts, **self._task.environment},
            "cwd": self._node.workdir,
        }
        self._supervise("start", stdin=json.dumps(request).encode(), deadline=START_SECONDS)

    def wait(self, seconds: float) -> int | None:
        """See RunningTask.wait."""
        try:
            completed = self._host.run(["sh", "-c", WAIT, "sh", self._state], deadline=seconds)
            return int(json.loads(completed.stdout)["exit_code"])
        except DeadlineError:
            return None
        except (CommandError, ValueError, KeyError) as error:
            raise TaskError(self._host.name, f"task {self._task.name} vanished without an exit code") from error

    def stop(self, grace: float) -> None:
        """See RunningTask.stop."""
        self._supervise("stop", "--grace", f"{grace:g}", deadline=grace + START_SECONDS)

    def output(self) -> str:
        """See RunningTask.output."""
        completed = self._host.run(["cat", f"{self._state}/output.log"], deadline=START_SECONDS, check=False)
        return completed.stdout

    def remove(self) -> None:
        """See RunningTask.remove."""
        self.stop(1.0)
        self._host.run(["rm", "-rf", self._state], deadline=START_SECONDS)
