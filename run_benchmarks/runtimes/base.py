"""Defines the runtime protocol: its part of the check, its images, the tasks of a node, and the cleaning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from container.image import ImageIdentity, ImageSpec
from protocol.circumstance import Circumstance
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.plan.plan import CasePlan, NodePlan, Plan, Task
from run_benchmarks.settings.container_options import Volume

MAX_OUTPUT_BYTES = 1 << 20  # of a task's own output; its ranks' output goes into files


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Values that a plan leaves open until a round starts on one node.

    Attributes:
        master_port: free on the master.
        image: id of the node's image on its host: a tag may be moved to another image at any time.
        user: numeric "uid:gid" of the task's user in a container.
        extra_hosts: addresses of the names that the host cannot resolve itself.
        devices: optional device folders that exist on the host.
        device_files: what patterns of the vendor's options stand for: the device nodes of the host.
        mounts: further folders of the host that the task sees.
        groups: further groups of its user, by number.
        facts: what the monitor adds to sys_info.json.
    """

    master_port: int
    image: str | None = None
    user: str = ""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    device_files: tuple[str, ...] = ()
    mounts: tuple[Volume, ...] = ()
    groups: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


class RunningTask(Protocol):
    """One task on one host. Methods fail with errors of run_benchmarks.errors; LinkLostError may be retried."""

    def start(self) -> None:
        """Start the task."""

    def exists(self) -> bool:
        """Whether it was started and exists, running or ended."""

    def trace(self) -> None:
        """Ask its ranks to write the stacks of their threads into their logs."""

    def wait(self, seconds: float) -> int | None:
        """Its exit code (0..255), or None if it still runs after `seconds`."""

    def trouble(self) -> Circumstance | None:
        """The event that ended or holds it, if neither its workload nor `stop` did; None: not known."""

    def stop(self, grace: float) -> None:
        """Ask it to end, and kill it with all its processes after `grace` seconds; does nothing if it has ended."""

    def output(self, grace: float) -> str:
        """End it as `stop` does, with `grace` in seconds, and return stdout and stderr; it stays, to be asked again.

        A task that does not exist, or was never started, has no output.
        """

    def remove(self) -> None:
        """Remove it from the host completely, after ending it if it still runs; does nothing if it does not exist."""

    def finish(self, grace: float) -> str:
        """`output` with `grace` in seconds, then `remove`."""


class HostView(Protocol):
    """The facts of a host from the check's script (`inspection.facts.HostFacts`) that a runtime needs."""

    @property
    def user(self) -> str:
        """The user that is logged in."""

    @property
    def has_docker_client(self) -> bool:
        """Whether the docker command exists."""

    @property
    def python(self) -> str | None:
        """The version of HostPython.interpreter; None if it does not run."""

    @property
    def no_python(self) -> str | None:
        """The reason why it does not run."""

    @property
    def missing_packages(self) -> tuple[str, ...]:
        """The HostPython.packages that it lacks."""


@dataclass(frozen=True, kw_only=True)
class HostPython:
    """The host's own interpreter that tasks run under, and the packages that it must have."""

    interpreter: str
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MissingPrerequisite:
    """The reason why a host cannot run tasks: found, expected, and what to do about it."""

    subject: str
    found: str
    expected: str
    action: str


@dataclass(kw_only=True)
class Readiness:
    """The state of a runtime on one host before a run.

    Attributes:
        failures: why the host cannot take part.
        engine_version: of the container engine; None without one.
        images: the id of each image that its cases need, by tag; None if the host lacks it.
        image_sizes: bytes of the existing images, by tag.
        image_folder: where a missing image will be stored; None if none is missing.
    """

    failures: list[MissingPrerequisite] = field(default_factory=list)
    engine_version: str | None = None
    images: dict[str, str | None] = field(default_factory=dict)
    image_sizes: dict[str, int] = field(default_factory=dict)
    image_folder: str | None = None

    def fail(self, subject: str, found: str, expected: str, action: str) -> None:
        """Add a failure."""
        self.failures.append(MissingPrerequisite(subject=subject, found=found, expected=expected, action=action))


class Runtime(Protocol):
    """Runs tasks in one way. Everything that differs between runtimes after planning is a method or attribute here.

    Methods that ask a host fail with the errors of run_benchmarks.errors. Several threads use a runtime at once.
    """

    @property
    def gives_addresses(self) -> bool:
        """Whether a task receives the addresses of hosts whose names its own host cannot resolve."""

    def host_python(self, cases: Sequence[CasePlan]) -> HostPython | None:
        """The requirements of these cases' tasks on the host's own Python; None if they bring their own."""

    def readiness(self, host: Host, view: HostView, cases: Sequence[CasePlan]) -> Readiness:
        """Whether a connected host can run the tasks of these cases. What is missing is a failure, not an error.

        Raises:
            LinkLostError: the host's link broke meanwhile.
        """

    def provide_images(
        self,
        plan: Plan,
        specs: Mapping[str, ImageSpec],
        hosts: Mapping[str, Host],
        settled: Mapping[str, ImageIdentity],
        patience: Patience,
    ) -> Mapping[str, Mapping[str, ImageIdentity]]:
        """Bring every image of the plan to every host that needs it; returns by tag the image of each host.

        Args:
            specs: how images are built, by tag.
            settled: images that this run has already provided, by tag. They are not built again, whatever bases the
                remaining hosts have: all rounds of a run use one image.
            patience: how long a host may be out of reach; an exception from its `check`, called often, aborts the call.

        Raises:
            TaskError: an image cannot be built or pulled, a host did not get it, or hosts have different images under a
                name that we may not change.
            HostError: a host was out of reach for longer.
        """

    def running_of_others(self, host: Host, key: str) -> tuple[str, ...]:
        """In words, running tasks of other runs than that of `key`, as far as the runtime can tell."""

    def clean(self, host: Host, plan: Plan) -> list[str]:
        """End and remove every task of the plan's run, of any controller; returns the names of what existed."""

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        """Create a task without starting it.

        Raises:
            TaskError: the runtime cannot create the task.
        """

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        """The task of that name that another controller started; it need not exist."""
