"""The two dialects: the original's bytes with its mistakes, or ours with the mistakes repaired."""

from collections.abc import Sequence
from typing import NamedTuple

SIMAI = "simai"
CLUSTERDYNO = "clusterdyno"
DIALECTS = (SIMAI, CLUSTERDYNO)
DEFAULT_DIALECT = CLUSTERDYNO


class Repair(NamedTuple):
    """A mistake of the original that the default dialect repairs: a short name, and what is different."""

    name: str
    what: str


def header(repairs: Sequence[Repair]) -> str:
    """One line that names the dialect and what it repaired, for the header of a file."""
    if not repairs:
        return f"dialect {CLUSTERDYNO}: nothing repaired"
    return f"dialect {CLUSTERDYNO}: repaired " + "; ".join(f"{repair.name} ({repair.what})" for repair in repairs)
