"""Records the outcome of one key of a FlagPerf tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["kept", "renamed", "added", "meaningless", "unknown", "left out", "by hand"]


@dataclass(frozen=True)
class Line:
    """A key of a file, its outcome, and the new name or the reason."""

    file: Path
    key: str
    outcome: Outcome
    note: str = ""
