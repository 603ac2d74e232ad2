"""Ends a rank whose settings cannot be used. Needs no torch."""

import sys
from typing import NoReturn

USAGE_EXIT_CODE = 2


class UnusableSettingsError(Exception):
    """Settings are valid but cannot be run here; the message names them. Workloads fail with it."""


def leave(model: str, error: Exception) -> NoReturn:
    """End the process with exit code 2 and the message."""
    sys.stderr.write(f"{model}: {error}\n")
    raise SystemExit(USAGE_EXIT_CODE) from error
