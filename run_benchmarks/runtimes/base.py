"""Defines the runtime protocol: its part of the check, its images, the tasks of a node, and the cleaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from container.engine_images import ImageIdentity
from container.image import ImageSpec
from run_benchmarks.hosts.base import Host
from run_benchmarks.plan.plan import CasePlan, NodePlan, Plan, Task
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


class HostView(Protocol):
    """What the check's script saw of a host (`inspection.facts.HostFacts`), as far as a runtime judges by it."""

    @property
    def user(self) -> str:
        """Who is logged in."""

    @property
    def has_docker_client(self) -> bool:
        """Whether the docker command is there."""

    @property
    def python(self) -> str | None:
        """The version of HostPython.interpreter; None where it does not run."""

    @property
    def no_python(self) -> str | None:
        """Why it does not run."""

    @property
    def missing_packages(self) -> tuple[str, ...]:
        """Those of HostPython.packages that it lacks."""


@dataclass(frozen=True, kw_only=True)
class HostPython:
    """The host's own interpreter that tasks run under, and the packages that it must have."""

    interpreter: str
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MissingPrerequisite:
    """What keeps a host from running tasks: found, expected, and what to do about it."""

    subject: str
    found: str
    expected: str
    action: str


@dataclass(kw_only=True)
class Readiness:
    """What a runtime found of itself on one host before a run.

    Attributes:
        failures: why the host cannot take part.
        engine_version: of what runs containers there; None without one.
        images: the id of each image that its cases need, by tag; None where the host lacks it.
        image_sizes: bytes of those that are there, by tag.
        image_folder: where an image that has to come will be kept; None where none has to.
    """

    failures: list[MissingPrerequisite] = field(default_factory=list)
    engine_version: str | None = None
    images: dict[str, str | None] = field(default_factory=dict)
    image_sizes: dict[str, int] = field(default_factory=dict)
    image_folder: str | None = None

    def fail(self, subject: str, found: str, expected: str, action: str) -> None:
        """Note a failure."""
        self.failures.append(MissingPrerequisite(subject=subject, found=found, expected=expected, action=action))


class Runtime(Protocol):
    """Runs tasks in one way. All that differs between runtimes once a run is planned is a method or attribute here.

    Methods that ask a host raise the errors of run_benchmarks.errors. Several threads use a runtime at once.
    """

    @property
    def gives_addresses(self) -> bool:
        """Whether a task gets the addresses of hosts whose names its own host cannot resolve."""

    def host_python(self, cases: Sequence[CasePlan]) -> HostPython | None:
        """What the tasks of these cases need of the host's own Python; None where they bring theirs."""

    def readiness(self, host: Host, view: HostView, cases: Sequence[CasePlan]) -> Readiness:
        """Whether a connected host can run the tasks of these cases. What is missing is a failure, not an error."""

    def provide_images(
        self,
        plan: Plan,
        specs: Mapping[str, ImageSpec],
        hosts: Mapping[str, Host],
        settled: Mapping[str, ImageIdentity],
        check: Callable[[], None],
    ) -> Mapping[str, Mapping[str, ImageIdentity]]:
        """Bring every image of the plan to every host that needs it; by tag, what each host has then.

        Args:
            specs: how images are built, by tag.
            settled: images that this run has provided before, by tag. They are not built anew, whatever bases the
                hosts that are left have: all rounds of a run use one image.
            check: called often; what it raises breaks off.

        Raises:
            TaskError: an image cannot be built or pulled, a host did not get it, or hosts have different ones of a
                name that is not ours to change.
        """

    def running_of_others(self, host: Host, key: str) -> tuple[str, ...]:
        """In words, tasks of other runs than that of `key` which run there now, as far as the runtime can tell."""

    def clean(self, host: Host, plan: Plan) -> list[str]:
        """End and remove every task of the plan's run, whoever started it; the names of what was there."""

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """Create a task without starting it.

        Raises:
            TaskError: the runtime cannot create the task.
        """

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        """The task of that name as another controller started it; it need not be there."""
