"""A host that is only simulated: every command takes a latency and gets another host's real answer."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from docker import APIClient

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.base import Completed, ConnectionAdvice

LATENCY_SECONDS = 0.005


class SimulatedHost:
    """Answers every command with another host's real answer, after a latency."""

    needs_docker_client = False

    def __init__(self, name: str, answer: str) -> None:
        self.name, self.address, self._answer = name, name, answer

    def connect(self) -> None:
        """One latency."""
        time.sleep(LATENCY_SECONDS)

    reconnect = connect

    def close(self) -> None:
        """Nothing to close."""

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: IO[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        check: bool = True,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """One latency and the recorded answer, with the clock of now."""
        time.sleep(LATENCY_SECONDS)
        answer = re.sub(r"(?m)^clock_ns\t\d+$", f"clock_ns\t{time.time_ns()}", self._answer)
        return Completed(argv=tuple(argv), exit_code=0, stdout=answer, stderr="", seconds=LATENCY_SECONDS)

    def remarks(self) -> tuple[ConnectionAdvice, ...]:
        """None: nothing is odd here."""
        return ()

    def docker(self) -> APIClient:
        """The process runtime asks for none."""
        raise ClusterDynoError(f"{self.name}: no Docker")

    def open_docker(self, timeout: int, check: Callable[[], None] | None = None) -> APIClient:
        """The process runtime asks for none; `timeout` in seconds."""
        raise ClusterDynoError(f"{self.name}: no Docker within {timeout} s")
