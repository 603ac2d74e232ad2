"""Runs tasks as containers through the Engine API: one container per task, its command under an init.

`read_output`, `state_of` and `trouble` say what a container wrote, its state, and what ended it or holds it up.
"""

import contextlib
import fnmatch
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import docker
import docker.errors
import docker.types
import requests

from protocol import safe_json
from protocol.circumstance import Circumstance, CircumstanceKind
from run_benchmarks.errors import EngineSilentError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.docker_client import BoundedAPIClient
from run_benchmarks.hosts.incoming.capture import Capture
from run_benchmarks.plan.plan import CasePlan, NodePlan, Plan, Task
from run_benchmarks.runtimes import docker_images, docker_inspection
from run_benchmarks.runtimes.base import MAX_OUTPUT_BYTES, Bound, HostPython, RunningTask, Runtime
from run_benchmarks.runtimes.docker_calls import ValueT, ask, call
from run_benchmarks.settings.container_options import ContainerOptions, is_cdi_name

CHUNK = 1 << 16
FRAME_HEADER = 8  # stream, three zeros, four bytes of length
MAX_READ_BYTES = 1 << 30
READ_SECONDS, LAST_SECONDS = 120.0, 10.0  # for all of it; before its end, what has arrived is taken
BOTH = {"stdout": "1", "stderr": "1"}
NOT_READ = "\n[... the engine has more than was read ...]\n"


class Frames:
    """The contents of an engine's stream of frames, which arrive cut anywhere; none is kept whole."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0

    def contents(self, chunk: bytes) -> Iterator[bytes]:
        """The contents in the next piece of the stream."""
        view = memoryview(chunk)
        while len(view):
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                yield bytes(piece)
            else:
                missing = FRAME_HEADER - len(self._header)
                self._header += view[:missing]
                view = view[missing:]
                if len(self._header) == FRAME_HEADER:
                    self._left = int.from_bytes(self._header[4:], "big")
                    self._header.clear()


def read_output(client: docker.APIClient, container: str, limit: int) -> str:
    """stdout and stderr of a container without a terminal, in about `limit` bytes, with a note on what is left out.

    Raises:
        docker.errors.APIError: the engine refuses, for example because the container is gone.
    """
    # The SDK's own `logs` keeps frames of any length whole.
    url = f"{client.base_url}/v{client.api_version}/containers/{quote(container, safe='')}/logs"
    total = client.total(READ_SECONDS) if isinstance(client, BoundedAPIClient) else contextlib.nullcontext()
    with total, client.get(url, params=BOTH, stream=True, timeout=client.timeout) as response:
        try:
            response.raise_for_status()
        except requests.HTTPError as error:
            raise docker.errors.create_api_error_from_http_exception(error) from error  # it raises it itself
        return _kept(response, limit)


def _kept(response: requests.Response, limit: int) -> str:
    kept, frames = Capture(limit), Frames()
    until, read = time.monotonic() + READ_SECONDS - LAST_SECONDS, 0
    for chunk in response.iter_content(CHUNK):
        for piece in frames.contents(chunk):
            kept.add(piece)
        read += len(chunk)
        if read > MAX_READ_BYTES or time.monotonic() > until:
            return kept.text() + NOT_READ
    return kept.text()


ANSWER_SECONDS = 5.0  # for an engine to report the state of a container
ANSWER_CHARACTERS = 500  # of an engine's error message
EVENTS_KEPT = 256  # an engine remembers so many (moby, daemon/events)
LATER = 1.0  # seconds between a container's end and the engine's event of it
OURS = ("10", "SIGUSR1")  # RunningTask.trace


def state_of(client: docker.APIClient, name: str) -> Mapping[str, Any] | None:
    """The state of a container (`State` of the Engine API); None if there is no such container.

    Raises:
        docker.errors.APIError: the engine refuses.
    """
    url = f"{client.base_url}/v{client.api_version}/containers/{quote(name, safe='')}/json"
    response = client.get(url, timeout=ANSWER_SECONDS)
    if response.status_code == requests.codes.not_found:
        return None
    if response.status_code != requests.codes.ok:
        raise docker.errors.APIError(response.text[:ANSWER_CHARACTERS], response)
    state: Mapping[str, Any] = response.json()["State"]
    return state


def trouble(client: docker.APIClient, name: str) -> Circumstance | None:
    """The event that ended a container or holds it up, None if that was its workload or `stop` or is not known.

    Raises:
        docker.errors.APIError: the engine refuses.
        KeyError, TypeError, ValueError: its answer cannot be read.
    """
    state = state_of(client, name)
    if state is None:
        return Circumstance(
            kind=CircumstanceKind.TASK, words="its container was removed, and not by this run (docker rm -f)"
        )
    if state.get("Paused"):
        return Circumstance(kind=CircumstanceKind.PAUSED, words="its container is paused (docker pause)")
    if state["Status"] not in ("exited", "dead"):
        return None
    if state.get("OOMKilled"):
        return Circumstance(
            kind=CircumstanceKind.MEMORY, words="the kernel ended processes of its container for lack of memory"
        )
    return _of_events(list(_events(client, state)), name)


def _of_events(events: list[Mapping[str, Any]], name: str) -> Circumstance | None:
    own = [event for event in events if event["Actor"]["Attributes"].get("name") == name]
    actions = [str(event["Action"]) for event in own]
    kills = [str(event["Actor"]["Attributes"].get("signal")) for event in own if event["Action"] == "kill"]
    if any(signal not in OURS for signal in kills):
        words = "its container was stopped, and not by this run (docker stop or docker kill)"
        return Circumstance(kind=CircumstanceKind.TASK, words=words)
    if "start" not in actions and len(events) < EVENTS_KEPT:
        return Circumstance(kind=CircumstanceKind.ENGINE, words="its Docker engine was stopped and started again")
    return None


def _events(client: docker.APIClient, state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The events of the engine's containers until shortly after the end of one in this state."""
    until = datetime.fromisoformat(state["FinishedAt"]).timestamp() + LATER
    url = f"{client.base_url}/v{client.api_version}/events"
    query = {"since": "0", "until": f"{until:.3f}", "filters": '{"type": ["container"]}'}
    response = client.get(url, params=query, timeout=ANSWER_SECONDS)
    response.raise_for_status()
    for line in response.text.splitlines():
        event = safe_json.load(line)
        if isinstance(event, dict):
            yield event


# Independent of the engine's default: it can be read back, and does not fill the host's disk.
LOG_ROTATION = {"max-size": "32m", "max-file": "2"}
LIMIT_REFUSED = ("rlimit", "operation not permitted")
MAX_EXIT_CODE = 2**31


class DockerRuntime(Runtime):
    """Creates containers with what a task needs and nothing more (docs/explanation/security.md).

    `warn` receives what a host does not permit; about `output_bytes` of a task's output are kept.
    """

    gives_addresses = True  # as /etc/hosts entries of the container
    readiness = staticmethod(docker_inspection.readiness)
    running_of_others = staticmethod(docker_inspection.running_of_others)
    provide_images = staticmethod(docker_images.provide_images)

    def __init__(self, warn: Callable[[str], None], output_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._warn, self._output_bytes = warn, output_bytes

    def host_python(self, cases: Sequence[CasePlan]) -> HostPython | None:
        """None: the image has Python."""
        return None

    def clean(self, host: Host, plan: Plan) -> list[str]:
        """Remove the run's containers, found by their label; returns their names."""
        return docker_inspection.remove_containers(host, plan.key)

    def create(self, host: Host, node: NodePlan, task: Task, bound: Bound) -> RunningTask:
        container = _Container(host, node, task, bound, self._warn, self._output_bytes)
        container.create()
        return container

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        return _Container(host, node, task, None, self._warn, self._output_bytes)


def make(warn: Callable[[str], None], output_bytes: int) -> Runtime:
    """The runtime of containers, of whose output `output_bytes` are kept; `warn` is told what a host refuses."""
    return DockerRuntime(warn, output_bytes)


def exit_code(value: object) -> int:
    """An exit code in an engine's answer.

    Raises:
        ValueError: the value is no exit code.
    """
    if not isinstance(value, int) or abs(value) > MAX_EXIT_CODE:
        raise ValueError(f"{value!r:.100} is no exit code")
    return value


class _Container(RunningTask):
    def __init__(
        self,
        host: Host,
        node: NodePlan,
        task: Task,
        bound: Bound | None,
        warn: Callable[[str], None],
        output_bytes: int,
    ) -> None:
        self._host, self._node, self._task, self._bound, self._warn = host, node, task, bound, warn
        self._output_bytes = output_bytes

    def create(self) -> None:
        """Create the container, on an engine that answers: creating one may take it DOCKER_SECONDS."""
        self._call(f"before creating container {self._task.name}", lambda: ask(self._host.docker(), "version"))
        self._create(self._node.options)

    def _create(self, options: ContainerOptions) -> None:
        task, node, bound = self._task, self._node, self._bound
        assert bound is not None
        client = self._host.docker()
        home = {"HOME": "/tmp", "USER": "clusterdyno", "LOGNAME": "clusterdyno"}  # the uid has no passwd entry there
        facts = {f"CLUSTERDYNO_SYS_{key.upper()}": value for key, value in bound.facts.items()}

        def create() -> Any:
            return client.create_container(
                image=bound.image or node.image,
                command=list(task.bound_argv(bound.master_port)),
                entrypoint=[],
                name=task.name,
                environment={**home, **facts, **task.environment},
                labels=task.labels,
                user=bound.user,
                working_dir=node.workdir,
                host_config=_host_config(client, node, options, bound),
            )

        what = f"creating container {task.name} from {node.image} ({bound.image})"
        try:
            self._call(what, create)
        except TaskError as error:
            if getattr(error.__cause__, "status_code", None) != requests.codes.conflict:
                raise
            self.remove()  # an earlier call, whose answer was lost, made it meanwhile
            self._call(what, create)

    def _call(self, what: str, action: Callable[[], ValueT]) -> ValueT:
        return call(self._host, what, action)

    def start(self) -> None:
        """Start; where the host may not raise a resource limit, start without it and say so."""
        name = self._task.name
        try:
            self._call(f"starting container {name}", lambda: self._host.docker().start(name))
        except TaskError as error:
            refused = any(word in str(error).lower() for word in LIMIT_REFUSED)
            if not refused or not self._node.options.ulimits:
                raise
            limits = ", ".join(limit.name for limit in self._node.options.ulimits)
            self._warn(f"{self._host.name}: the host does not let a container raise {limits}; started without")
            self.remove()
            self._create(self._node.options.model_copy(update={"ulimits": ()}))
            self._call(f"starting container {name}", lambda: self._host.docker().start(name))

    def exists(self) -> bool:
        name, client = self._task.name, self._host.docker()
        filters = {"name": f"^/{re.escape(name)}$"}
        found = self._call(f"looking for container {name}", lambda: client.containers(all=True, filters=filters))
        return any(container["State"] != "created" for container in found)

    def trace(self) -> None:
        name, client = self._task.name, self._host.docker()
        self._call(f"signalling container {name}", lambda: client.kill(name, signal="SIGUSR1"))

    def wait(self, seconds: float) -> int | None:
        client = self._host.docker()
        try:
            return self._call(
                f"waiting for container {self._task.name}",
                lambda: exit_code(client.wait(self._task.name, timeout=round(seconds))["StatusCode"]),
            )
        except EngineSilentError:
            return self._exit_code_now()

    def _exit_code_now(self) -> int | None:
        """The exit code, None where it runs: a frozen engine is as silent as one whose container goes on."""
        name, client = self._task.name, self._host.docker()

        def inspect() -> int | None:
            state = state_of(client, name)
            if state is None:
                raise docker.errors.NotFound("it does not exist any more")
            return exit_code(state["ExitCode"]) if state["Status"] in ("exited", "dead") else None

        return self._call(f"asking for container {name}", inspect)

    def trouble(self) -> Circumstance | None:
        name, client = self._task.name, self._host.docker()
        return self._call(f"asking for container {name}", lambda: trouble(client, name))

    def stop(self, grace: float) -> None:
        name, client = self._task.name, self._host.docker()
        with _ignore_gone():
            self._call(f"stopping container {name}", lambda: client.stop(name, timeout=round(grace)))

    def output(self, grace: float) -> str:
        self.stop(grace)
        name, client = self._task.name, self._host.docker()
        output = ""
        with _ignore_gone():
            output = self._call(f"reading the output of {name}", lambda: read_output(client, name, self._output_bytes))
        return output

    def finish(self, grace: float) -> str:
        output = self.output(grace)
        self.remove()
        return output

    def remove(self) -> None:
        name, client = self._task.name, self._host.docker()
        with _ignore_gone():
            self._call(f"removing container {name}", lambda: client.remove_container(name, force=True, v=True))


@contextlib.contextmanager
def _ignore_gone() -> Any:
    try:
        yield
    except docker.errors.NotFound:
        pass
    except TaskError as error:
        if not isinstance(error.__cause__, docker.errors.NotFound):
            raise


def _host_config(client: docker.APIClient, node: NodePlan, options: ContainerOptions, bound: Bound) -> Any:
    mounts = [
        docker.types.Mount(volume.target, volume.source, type="bind", read_only=volume.read_only)
        for volume in (*node.mounts, *options.volumes, *bound.mounts)
    ]
    return client.create_host_config(
        init=True,
        network_mode="host",
        mounts=mounts,
        extra_hosts=dict(bound.extra_hosts) or None,
        cap_drop=["ALL"],
        cap_add=list(options.cap_add) or None,
        security_opt=["no-new-privileges", *options.security_opt],
        devices=[*_devices(options, bound), *bound.devices],
        device_requests=_device_requests(options),
        group_add=[*options.group_add, *bound.groups] or None,
        runtime=options.runtime,
        ipc_mode=options.ipc,
        shm_size=options.shm_size if options.ipc is None else None,
        mem_limit=options.memory,
        memswap_limit=options.memory,  # the same: no swap beside it, or the limit would not bound
        ulimits=[docker.types.Ulimit(name=u.name, soft=u.soft, hard=u.hard) for u in options.ulimits],
        privileged=options.privileged,
        pids_limit=options.pids_limit,
        log_config=docker.types.LogConfig(type="json-file", config=LOG_ROTATION),
    )


def _devices(options: ContainerOptions, bound: Bound) -> Iterator[str]:
    """Devices by path; one that the host does not have is left for the engine to refuse."""
    for each in options.devices:
        if not is_cdi_name(each):
            yield from fnmatch.filter(bound.device_files, each) or [each]


def _device_requests(options: ContainerOptions) -> list[docker.types.DeviceRequest] | None:
    """Devices that the engine itself finds: GPUs, and those of the Container Device Interface (engine 25 or later)."""
    gpus, request = options.gpus, docker.types.DeviceRequest
    found = []
    if gpus is not None and gpus.startswith("device="):
        found.append(request(device_ids=gpus.removeprefix("device=").split(","), capabilities=[["gpu"]]))
    elif gpus is not None:
        found.append(request(count=-1 if gpus == "all" else int(gpus), capabilities=[["gpu"]]))
    by_name = [each for each in options.devices if is_cdi_name(each)]
    if by_name:
        found.append(request(driver="cdi", device_ids=by_name))
    return found or None
