"""Defines the runtime protocol: create, start, await, stop and remove the task of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from run_benchmarks.hosts.base import Host
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.settings.container_options import Volume

MAX_OUTPUT_BYTES = 1 << 20  # of what a task itself writes; its ranks' output goes into files


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What a plan leaves open until a round starts on one node.

    Attributes:
        master_port: free on the master.
        image: id of the node's image on its host: a tag may stand for another one the next moment.
        user: numeric "uid:gid" that the task runs as in a container.
        extra_hosts: addresses of the names that the host cannot resolve itself.
        devices: optional device folders that the host really has.
        mounts: further folders of the host that the task sees.
        groups: further groups of its user, by number.
        facts: what the monitor writes into sys_info.json beside its own findings.
    """

    master_port: int
    image: str | None = None
    user: str = ""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    mounts: tuple[Volume, ...] = ()
    groups: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


class RunningTask(Protocol):
    """One task on one host. Every method raises the errors of run_benchmarks.errors; LinkLostError may be retried."""

    def start(self) -> None:
        """Start it."""

    def exists(self) -> bool:
        """Whether it was started and is there, running or ended."""

    def trace(self) -> None:
        """Ask its ranks to write the stacks of their threads into their logs."""

    def wait(self, seconds: float) -> int | None:
        """Its exit code (0..255), or None where it still runs after `seconds`."""

    def stop(self, grace: float) -> None:
        """Ask it to end, kill it with all its processes after `grace` seconds; nothing where it has ended."""

    def output(self, grace: float) -> str:
        """End it as `stop` does and return what it wrote to stdout and stderr; it stays, and can be asked again.

        What is not there, or was never started, wrote nothing.
        """

    def remove(self) -> None:
        """Remove all of it from the host, ended before where it still runs; nothing where it is not there."""

    def finish(self, grace: float) -> str:
        """`output`, then `remove`."""


class Runtime(Protocol):
    """Starts tasks in one way."""

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """Create a task without starting it.

        Raises:
            TaskError: the runtime cannot create the task.
        """

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        """The task of that name as another controller started it; it need not be there."""
