"""Calls a tool on this host: the whole command, each RDMA device against itself, or the files that it left."""

import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.benchmarks.tools import inspector
from training.benchmarks.tools.calls import Call, Ended, awaited_server, located
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.table import TOOLS
from vendors.programs import Answer, NotRunError, Program, UnreadableError

INSPECTOR = "inspector"
PORT = 18610
INFINIBAND = Path("/sys/class/infiniband")


@dataclass(frozen=True)
class Bench:
    """A tool with the command of this host."""

    tool: Program
    argv: tuple[str, ...]

    def call(self, device: str, *words: str) -> Call:
        """Start it, with words after its own."""
        argv = [word.replace("{device}", device) for word in self.argv]
        return Call([*argv, *words], self.tool.most_seconds(self.argv))

    def read(self, ended: Ended) -> Answer:
        """The results of a call.

        Raises:
            NotRunError: its time was up, or it ended without one.
        """
        if ended.is_late:
            raise NotRunError(f"did not end within {self.tool.most_seconds(self.argv):g} s")
        try:
            return self.tool.read(ended.text)
        except UnreadableError as error:
            code = f"exit code {ended.exit_code}, " if ended.exit_code else ""
            raise NotRunError(f"{code}{error}") from error


def told(work: Callable[[], Answer]) -> dict[str, Any]:
    """The fields of the Answer, or why the tool is `not_run`."""
    try:
        return asdict(work())
    except (NotRunError, UnreadableError, OSError) as error:
        return {"not_run": str(error), "is_missing": getattr(error, "is_missing", False)}


def alone(name: str, config: Config) -> Answer:
    """The results of a tool that needs no other host.

    Raises:
        NotRunError, UnreadableError: there is no result.
        OSError: it cannot be started.
    """
    if name == INSPECTOR:
        return inspector.read(Path(config.inspector_folder or ""), socket.gethostname(), config.inspector_max_age_s)
    bench = bench_of(name, config)
    if bench.tool.scope == "host":
        with bench.call("") as call:
            return bench.read(call.wait())
    found = {device: _loopback(bench, device) for device in devices_of(config)}
    return Answer(figures={device: value for device, answer in found.items() for value in answer.figures.values()})


def bench_of(name: str, config: Config) -> Bench:
    """A tool with its command here.

    Raises:
        NotRunError: it is not installed, or not for the devices of this host.
    """
    tool, words = TOOLS[name], config.words_of(name)
    program = tool.command[0]
    path = located(program, tool.folders)
    if path is None:
        raise NotRunError(f"{program} is not installed", is_missing=True)
    if tool.model is not None and any("{model}" in word for word in words):
        model = tool.model()
        words = [word.replace("{model}", model) for word in words]
        path = located(program, tuple(folder for folder in tool.folders if model in folder))
        if path is None:
            raise NotRunError(f"{program} for {model} is not installed", is_missing=True)
    return Bench(tool, (path, *words))


def devices_of(config: Config, infiniband: Path = INFINIBAND) -> list[str]:
    """The RDMA devices that are tested, in one order on all hosts.

    Raises:
        NotRunError: none is chosen, and none has an active port.
    """
    if config.devices is not None:
        return config.devices
    active = {state.parents[2].name for state in infiniband.glob("*/ports/*/state") if _is_active(state)}
    if not active:
        raise NotRunError("no InfiniBand or RoCE port is active", is_missing=True)
    return sorted(active, key=lambda name: (len(name), name))


def _is_active(state: Path) -> bool:
    try:
        return "ACTIVE" in state.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False


def _loopback(bench: Bench, device: str) -> Answer:
    port = ("-p", str(PORT))
    with bench.call(device, *port) as server:
        if not awaited_server(server, PORT):
            return bench.read(server.wait() if server.has_ended else Ended("its server does not listen", 0, False))
        with bench.call(device, *port, "localhost") as client:
            return bench.read(client.wait())
