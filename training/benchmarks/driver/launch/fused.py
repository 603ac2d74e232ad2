"""Detects the libraries of fused kernels of this Python by importing each in a process of its own.

`python -m training.benchmarks.driver.launch.fused NAME...` prints what `detect` finds as JSON, a line for each library.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# Distribution and the modules whose import proves its presence. PyPI's apex is another project without these modules.
LIBRARIES = {
    "flash_attn": ("flash_attn",),
    "apex": ("apex.optimizers", "amp_C"),
    "transformer_engine": ("transformer_engine.pytorch",),
}
UNUSABLE = "unusable"
UNFINISHED = "unknown: the round ended while it was imported"
LOWEST_PRIORITY = 19
_IMPORT_SECONDS = 120
_ROOT = Path(__file__).resolve().parents[4]
_MODULE = "training.benchmarks.driver.launch.fused"


def detect(names: Iterable[str]) -> dict[str, str | None]:
    """Each of these LIBRARIES' version, "unusable: <why>" if it does not import, None if missing."""
    return {name: _version(name, LIBRARIES[name]) for name in names}


def _version(name: str, modules: tuple[str, ...]) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    # The import of a library that does not fit this torch may kill its process.
    imports = ", ".join((name, *modules))
    code = f"import {imports}\nprint(getattr({name}, '__version__', ''))"
    try:
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{UNUSABLE}: importing it took more than {_IMPORT_SECONDS} s"
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        return f"{UNUSABLE}: {lines[-1]}"
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return (result.stdout.splitlines() or [""])[-1] or "unknown version"


class Detection:
    """Runs `detect` for all LIBRARIES in a process of the lowest priority, in parallel with the round.

    `found` holds the results of `detect` that are known so far.
    """

    def __init__(self) -> None:
        there = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
        self.found: dict[str, str | None] = {name: UNFINISHED if name in there else None for name in LIBRARIES}
        self._process: subprocess.Popen[str] | None = None
        if there:
            argv = [sys.executable, "-m", _MODULE, *there]
            self._process = subprocess.Popen(
                argv, cwd=_ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
            _lower_priority(self._process.pid)

    def end(self) -> None:
        """Take the results so far, and end the process together with the import in progress."""
        if self._process is None:
            return
        # A process that has ended, and that somebody else has waited for, may have left its number to another.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for line in self._process.communicate()[0].splitlines():
            self.found |= json.loads(line)
        self._process = None


def _lower_priority(pid: int) -> None:
    """Give a process that leads its session, and all that it starts, the lowest priority."""
    with contextlib.suppress(OSError):  # it may have ended
        os.setpriority(os.PRIO_PROCESS, pid, LOWEST_PRIORITY)
        # Where the kernel shares the processor by session (autogroup), a process is nice to its own session alone.
        Path(f"/proc/{pid}/autogroup").write_text(str(LOWEST_PRIORITY), encoding="ascii")


if __name__ == "__main__":
    for library in sys.argv[1:]:
        print(json.dumps(detect([library])), flush=True)
