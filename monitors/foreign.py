"""Finds foreign processes on the host's accelerators: those that were there before the round, and those of others."""

import os
import time
from dataclasses import asdict
from pathlib import Path

from monitors.accelerator import AcceleratorSampler
from monitors.sampler import Sampler, Values
from vendors.base import AcceleratorProcess

EVERY_S = 30.0  # a driver needs about a millisecond per device to list them
MAX_PARENTS = 32


class ForeignProcesses(Sampler):
    """Looks once before the workload starts and then every EVERY_S. Processes seen at the first look are foreign.

    Later ones are identified by their parents: a process of the round descends from a launch with this `log_dir`. The
    pids of processes in containers mean nothing inside another container: there only the first look counts.
    """

    source = "accelerator_processes"

    def __init__(self, sampler: AcceleratorSampler, log_dir: str, proc: Path = Path("/proc")) -> None:
        self._sampler, self._log_dir, self._proc = sampler, log_dir.encode(), proc
        self._due = time.monotonic() + EVERY_S
        self._before: set[int] = set()
        self._first: Values | None = self._look(is_first=True)

    def sample(self) -> Values | None:
        """{"first": whether it is the first look, "foreign": [{"device", "pid", "memory_bytes"}]}, when due."""
        first, self._first = self._first, None
        if first is not None:
            return first
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + EVERY_S
        return self._look(is_first=False)

    def _look(self, *, is_first: bool) -> Values | None:
        try:
            listed = self._sampler.processes()
        except Exception:
            if is_first:  # the samples say what is wrong with the driver
                return None
            raise
        if listed is None:
            return None
        if is_first:
            self._before = {each.pid for each in listed}
        foreign = [asdict(each) for each in listed if self._is_foreign(each)]
        return {"first": is_first, "foreign": foreign}

    def _is_foreign(self, process: AcceleratorProcess) -> bool:
        return process.pid in self._before or self._descends_from_the_launch(process.pid) is False

    def _descends_from_the_launch(self, pid: int) -> bool | None:
        """Whether the process belongs to the round; None if it cannot be seen from here."""
        for _ in range(MAX_PARENTS):
            try:
                command = (self._proc / str(pid) / "cmdline").read_bytes()
                # The name, in parentheses, may itself hold blanks and parentheses.
                parent = int((self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return None
            if self._log_dir in command.split(b"\0"):
                return True
            if parent <= 1 or pid == os.getpid():
                return False
            pid = parent
        return False
