"""The smallest runtime: a task is a child process of the controller (see test_third_runtime.py)."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from container.image import ImageIdentity, ImageSpec
from protocol.circumstance import Circumstance
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.plan.plan import CasePlan, NodePlan, Plan, Task
from run_benchmarks.runtimes.base import Bound, HostPython, HostView, Readiness, RunningTask, Runtime


class NullRuntime:
    """Runs tasks on localhost for as long as the controller lives."""

    gives_addresses = False

    def host_python(self, cases: Sequence[CasePlan]) -> HostPython | None:
        return None

    def readiness(self, host: Host, view: HostView, cases: Sequence[CasePlan]) -> Readiness:
        found = Readiness()
        if host.needs_docker_client:
            found.fail("null runtime", f"host {host.name}", "localhost", "write HOSTS = ['localhost']")
        return found

    def provide_images(
        self,
        plan: Plan,
        specs: Mapping[str, ImageSpec],
        hosts: Mapping[str, Host],
        settled: Mapping[str, ImageIdentity],
        patience: Patience,
    ) -> Mapping[str, Mapping[str, ImageIdentity]]:
        return {}

    def running_of_others(self, host: Host, key: str) -> tuple[str, ...]:
        return ()

    def clean(self, host: Host, plan: Plan) -> list[str]:
        return []

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        return _Child(node, task, bound)

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        return _Child(node, task, None)


def make(warn: Callable[[str], None], output_bytes: int) -> Runtime:
    return NullRuntime()


class _Child:
    def __init__(self, node: NodePlan, task: Task, bound: Bound | None) -> None:
        self._node, self._task, self._bound = node, task, bound
        self._process: subprocess.Popen[bytes] | None = None
        self._path = Path(f"{node.log_dir_host}.{task.name}")  # beside the node's folder: it is not collected

    def start(self) -> None:
        assert self._bound is not None
        with self._path.open("wb") as output:
            self._process = subprocess.Popen(
                self._task.bound_argv(self._bound.master_port),
                cwd=self._node.workdir,
                env={**os.environ, **self._task.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def exists(self) -> bool:
        return self._process is not None

    def trace(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1)

    def wait(self, seconds: float) -> int | None:
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def trouble(self) -> Circumstance | None:
        return None

    def stop(self, grace: float) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        if self.wait(grace) is None:
            self._process.kill()

    def output(self, grace: float) -> str:
        self.stop(grace)
        return self._path.read_text(errors="replace") if self._process is not None else ""

    def remove(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._path.unlink(missing_ok=True)

    def finish(self, grace: float) -> str:
        output = self.output(grace)
        self.remove()
        return output
