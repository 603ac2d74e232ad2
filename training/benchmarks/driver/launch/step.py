"""Runs both tasks of a node inside one step of a batch system, and ends them with that step, however it ends.

    python -m training.benchmarks.driver.launch.step --monitor M --workload W < request of the monitor

M and W are state folders of supervise.py. The monitor starts at once, then the line "ready" is written, and the
workload starts when the file W.request is there. The step ends once both have ended.

A batch system that knows the step's processes by their parents (Slurm's proctrack/linuxproc) finds all of them, since
this process adopts whatever loses its parent. Where it signals the first process alone (proctrack/pgid), kills it, or
loses its own daemon above it, a pipe closes that both supervisors watch, and each stops its tree.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from training.benchmarks.driver.launch.process_tree import above, become_reaper, is_running, kill_below
from training.benchmarks.driver.launch.supervise import Signals, start

BATCH_DAEMON = "slurmstepd"  # above every process of a step
FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.1, 1.0  # for the request of the workload; for the processes above
READY = "ready"


class Step:
    """The two supervisors of a node, children of this process."""

    def __init__(self, monitor: Path, workload: Path) -> None:
        self._monitor, self._workload = monitor, workload
        self._request = workload.with_name(f"{workload.name}.request")
        self._refused = workload.with_name(f"{workload.name}.refused")
        self._above = above(os.getpid(), BATCH_DAEMON)
        self._reader, self._writer = os.pipe()
        self._is_ending = self._has_workload = False

    def run(self, request: dict[str, Any]) -> None:
        """Start the monitor by this request, then the workload by its own, and return once both have ended."""
        become_reaper()
        signals = Signals()
        for left in (self._request, self._refused):
            left.unlink(missing_ok=True)
        running = {start(self._monitor, request, (self._reader, self._writer))}
        print(READY, flush=True)
        _close_streams()
        while running := running - {None} - _reap():
            if not self._has_workload and not self._is_ending and self._request.exists():
                running.add(self._begin_workload())
            numbers = signals.wait(LOOK_SECONDS if self._has_workload else FIRST_LOOK_SECONDS)
            if signal.SIGTERM in numbers or not all(is_running(*each) for each in self._above):
                self._end()
        kill_below(os.getpid())

    def _begin_workload(self) -> int | None:
        self._has_workload = True
        try:
            return start(self._workload, json.loads(self._request.read_bytes()), (self._reader, self._writer))
        except (OSError, ValueError, SystemExit) as error:
            self._refused.write_text(f"{error}\n", encoding="utf-8")
            return None
        finally:
            self._request.unlink(missing_ok=True)

    def _end(self) -> None:
        """Have both supervisors stop their trees."""
        if not self._is_ending:
            self._is_ending = True
            os.close(self._writer)


def _reap() -> set[int]:
    """The children, own and adopted, that have ended since the last call."""
    found = set()
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            found.add(pid)
    return found


def _close_streams() -> None:
    """Nobody reads them any more: they lead to the controller, which may go away."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(prog="step", description=(__doc__ or "").splitlines()[0])
    for name in ("monitor", "workload"):
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"state folder of the {name}'s supervisor")
    arguments = parser.parse_args()
    Step(arguments.monitor, arguments.workload).run(json.load(sys.stdin))


if __name__ == "__main__":
    main()
