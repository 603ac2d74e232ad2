"""Tasks as supervised process trees on hosts without Docker; the host's Python runs them."""

from __future__ import annotations

import io
import json

from run_benchmarks.errors import CommandError, DeadlineError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.runtimes.base import MAX_OUTPUT_BYTES, Bound, RunningTask
from training.benchmarks.driver.protocol import safe_json

SUPERVISE = ("-m", "training.benchmarks.driver.launch.supervise")
START_SECONDS = 30.0
# Blocks until the supervisor has ended: it holds the FIFO's writing end. Opened for both first, so that the opening for
# reading never waits. A file system without FIFOs leaves a look twice a second; a zombie that nobody reaps has ended.
WAIT = """
cd "$1" || exit 1
if [ -p alive ]; then
  [ -e exit.json ] || { exec 3<>alive 4<alive 3>&-; read -r end <&4; }
else
  pid=$(sed 's/.*"pid": \\([0-9]*\\).*/\\1/' supervisor.json)
  while [ ! -e exit.json ] && { read -r stat < "/proc/$pid/stat"; } 2>/dev/null; do
    case $stat in *") Z "*) break ;; esac
    sleep 0.5
  done
  [ -e exit.json ] || sleep 0.2
fi
cat exit.json
"""
# Arguments: state folder, code folder, interpreter, grace, bytes of output (of more, the beginning and the
# end), then what to do: output, remove or finish (both).
END = r"""
cd "$1" 2>/dev/null || exit 0
export PYTHONPATH="$2" PYTHONDONTWRITEBYTECODE=1
[ -e exit.json ] || "$3" -m training.benchmarks.driver.launch.supervise stop --grace "$4" --state "$1" || exit
size=$(wc -c < output.log)
if [ "$6" = remove ]; then
  :
elif [ "$size" -le "$5" ]; then
  cat output.log
else
  head -c "$(($5 / 4))" output.log
  printf '\n[... %s bytes are left out here ...]\n' "$((size - $5 / 4 - $5 * 3 / 4))"
  tail -c "$(($5 * 3 / 4))" output.log
fi
[ "$6" = output ] || { cd / && rm -rf "$1"; }
"""
REMOVE_GRACE = 5.0


class ProcessRuntime:
    """Starts tasks under `driver.launch.supervise`; about `output_bytes` of a task's output are kept."""

    def __init__(self, output_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._output_bytes = output_bytes

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """See Runtime.create; nothing happens on the host before the start."""
        return _Tree(host, node, task, bound, self._output_bytes)

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        """See Runtime.attach."""
        return _Tree(host, node, task, None, self._output_bytes)


class _Tree:
    def __init__(self, host: Host, node: NodePlan, task: Task, bound: Bound | None, output_bytes: int) -> None:
        self._host, self._node, self._task, self._bound = host, node, task, bound
        self._output_bytes = output_bytes
        # Beside the node's folder, not in it: what the supervisor writes is not collected.
        self._state = f"{node.log_dir_host}.{task.labels['org.clusterdyno.task']}"

    def _supervise(self, *words: str, stdin: bytes = b"", deadline: float) -> None:
        argv = [
            "env",
            f"PYTHONPATH={self._node.workdir}",
            "PYTHONDONTWRITEBYTECODE=1",  # a cache beside the code would be a difference from it
            self._task.argv[0],
            *SUPERVISE,
            *words,
            "--state",
            self._state,
        ]
        try:
            self._host.run(argv, stdin=io.BytesIO(stdin), deadline=deadline)
        except CommandError as error:
            raise TaskError(self._host.name, f"task {self._task.name}: {error}") from error

    def start(self) -> None:
        """See RunningTask.start."""
        assert self._bound is not None
        facts = {f"CLUSTERDYNO_SYS_{key.upper()}": value for key, value in self._bound.facts.items()}
        request = {
            "argv": self._task.bound_argv(self._bound.master_port),
            "environment": {**facts, **self._task.environment},
            "cwd": self._node.workdir,
        }
        self._supervise("start", stdin=json.dumps(request).encode(), deadline=START_SECONDS)

    def exists(self) -> bool:
        """See RunningTask.exists."""
        found = self._host.run(["test", "-e", f"{self._state}/supervisor.json"], deadline=START_SECONDS, check=False)
        return found.exit_code == 0

    def trace(self) -> None:
        """See RunningTask.trace."""
        self._supervise("trace", deadline=START_SECONDS)

    def wait(self, seconds: float) -> int | None:
        """See RunningTask.wait."""
        try:
            completed = self._host.run(["sh", "-c", WAIT, "sh", self._state], deadline=seconds)
            ended = safe_json.load(completed.stdout)
        except DeadlineError:
            return None
        except (CommandError, safe_json.UnsafeJsonError) as error:
            raise TaskError(self._host.name, f"task {self._task.name} vanished without an exit code") from error
        code = ended.get("exit_code") if isinstance(ended, dict) else None
        if not isinstance(code, int):
            raise TaskError(self._host.name, f"task {self._task.name} ended without an exit code")
        return code

    def stop(self, grace: float) -> None:
        """See RunningTask.stop."""
        self._supervise("stop", "--grace", f"{grace:g}", deadline=grace + START_SECONDS)

    def output(self, grace: float) -> str:
        """See RunningTask.output."""
        return self._end(grace, "output")

    def remove(self) -> None:
        """See RunningTask.remove."""
        self._end(REMOVE_GRACE, "remove")

    def finish(self, grace: float) -> str:
        """See RunningTask.finish; one round trip."""
        return self._end(grace, "finish")

    def _end(self, grace: float, what: str) -> str:
        python, output_bytes = self._task.argv[0], str(self._output_bytes)
        words = [self._state, self._node.workdir, python, f"{grace:g}", output_bytes, what]
        argv = ["sh", "-c", END, "sh", *words]
        return self._host.run(argv, deadline=grace + START_SECONDS).stdout
