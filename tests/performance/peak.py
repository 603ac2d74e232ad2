"""Wall time and peak memory of one command, and the peak memory of the process that asks.

A child's ru_maxrss starts at its parent's size at the fork (Linux keeps the larger across exec), so the command is
forked from a bare interpreter, not from the measuring process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

MEGABYTE = 1e6
# Prints {"seconds", "kilobytes", "exit_code"} on its stderr's last line; stdout is the command's own.
LAUNCHER = """
import json, os, sys, time
begin = time.perf_counter()
pid = os.fork()
if pid == 0:
    os.dup2(1, 2)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
seconds = time.perf_counter() - begin
code = os.waitstatus_to_exitcode(status)
sys.stderr.write(json.dumps({"seconds": seconds, "kilobytes": usage.ru_maxrss, "exit_code": code}))
"""


def run_measured(argv: list[str], cwd: Path) -> tuple[float, float, int, str]:
    """Wall seconds, peak resident megabytes (1e6 bytes), exit code, and stdout with stderr, of one command.

    It keeps the bytecode of what it imports, as a user's does, so that a second run compiles no module.
    """
    command = [sys.executable, "-S", "-E", "-c", LAUNCHER, *argv]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    answer = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True)
    figures = json.loads(answer.stderr)
    return figures["seconds"], figures["kilobytes"] * 1024 / MEGABYTE, figures["exit_code"], answer.stdout


def own_peak() -> int:
    """Peak resident bytes of this process since its program began; VmHWM knows nothing of its parent (proc(5))."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024


def run_sound(argv: list[str], cwd: Path) -> tuple[float, float, str]:
    """Wall seconds, peak resident megabytes (1e6 bytes), and stdout with stderr, of a command that has to succeed.

    Raises:
        RuntimeError: it ends with another exit code than 0.
    """
    seconds, megabytes, exit_code, said = run_measured(argv, cwd)
    if exit_code:
        raise RuntimeError(f"{' '.join(argv)} ended with {exit_code}:\n{said}")
    return seconds, megabytes, said
