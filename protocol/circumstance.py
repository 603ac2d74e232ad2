"""Defines what a host says afterwards of a task that broke: a reboot, its engine, its container, a full disk."""

from enum import StrEnum

from pydantic import BaseModel

from protocol.rank_states import NodeRanks


class CircumstanceKind(StrEnum):
    """Kinds of events, the strongest explanation first."""

    REBOOT = "reboot"
    ENGINE = "engine"
    PAUSED = "paused"
    TASK = "task"
    MEMORY = "memory"
    DISK = "disk"

    @property
    def is_infrastructure(self) -> bool:
        """Whether the same workload may pass where this does not happen: neither memory nor disk became full."""
        return self not in (CircumstanceKind.MEMORY, CircumstanceKind.DISK)


class Circumstance(BaseModel, frozen=True, extra="forbid"):
    """One fact of a host that explains why its part of a round broke, in words that follow the host's name."""

    kind: CircumstanceKind
    words: str


class NodeLook(BaseModel, frozen=True, extra="forbid"):
    """A node's ranks as its launcher had recorded them when the round was ended, before anything was stopped.

    `silent_seconds`: for so long, at least, the launcher had not renewed its record.
    """

    ranks: NodeRanks
    silent_seconds: float
