"""Ends a rank whose settings cannot be used, and names its host's processor. Needs no torch."""

import platform
import sys
from pathlib import Path
from typing import NoReturn

USAGE_EXIT_CODE = 2


class UnusableSettingsError(Exception):
    """Settings are valid but cannot be run here; the message names them. Workloads fail with it."""


def leave(model: str, error: Exception) -> NoReturn:
    """End the process with exit code 2 and the message."""
    sys.stderr.write(f"{model}: {error}\n")
    raise SystemExit(USAGE_EXIT_CODE) from error


def cpu_name(cpuinfo: Path) -> str:
    """The processor's name as its maker has it; the architecture where the kernel tells none, as on ARM."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return names[0] if names and names[0] else platform.machine()
