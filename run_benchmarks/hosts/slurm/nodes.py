"""Reads and changes the state of nodes: which are out of service, and for what reason."""

from collections.abc import Iterable
from dataclasses import dataclass

from run_benchmarks.hosts.slurm.client import call
from run_benchmarks.hosts.slurm.node_names import folded

OUT_OF_SERVICE = ("down", "drain", "fail", "error", "unknown", "inval")
MARK = "clusterdyno"  # with which the reason of a node begins that `drain --apply` took out of service
SILENT = "*"  # after the state of a node that does not answer


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """A node as Slurm shows it; `reason` is the administrator's or Slurm's own, "" without one; by: who set it."""

    name: str
    state: str
    reason: str
    by: str = ""

    @property
    def is_out_of_service(self) -> bool:
        """Whether no new job gets it."""
        return self.state.startswith(OUT_OF_SERVICE) or self.state.endswith(SILENT)

    @property
    def has_failed(self) -> bool:
        """Whether it is gone, and not only taken out of service by somebody."""
        return self.is_out_of_service and not self.is_drained

    @property
    def is_drained(self) -> bool:
        """Whether somebody took it out of service."""
        return self.state.startswith("drain")

    @property
    def in_words(self) -> str:
        """Its state and the reason, of a drained one with who drained it."""
        by = f"; by {self.by}" if self.by and self.is_drained else ""
        return f"{self.name} is {self.state}{f' ({self.reason}{by})' if self.reason else ''}"


def states_of(hosts: Iterable[str]) -> list[NodeState]:
    """The states of these nodes; a node in several partitions stands there once.

    Raises:
        SlurmError: slurmctld does not answer, or knows no such node.
    """
    return _listed(f"--nodes={folded(hosts)}")


def drained_by_us(partition: str | None) -> list[NodeState]:
    """The nodes of a partition, or of all, that `drain --apply` took out of service.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    found = _listed(*([] if partition is None else [f"--partition={partition}"]))
    return [node for node in found if node.is_out_of_service and node.reason.startswith(f"{MARK} ")]


def _listed(*filters: str) -> list[NodeState]:
    return from_sinfo(call(["sinfo", "--noheader", "--Node", *filters, "--format=%N|%T|%u|%E"]))


def from_sinfo(text: str) -> list[NodeState]:
    """The nodes in an answer of sinfo; the reason stands last, since it may hold any separator."""
    found: dict[str, NodeState] = {}
    for line in text.splitlines():
        fields = line.split("|", 3)
        if len(fields) == 4:
            name, state, by, reason = (field.strip() for field in fields)
            reason = "" if reason == "none" else reason
            found[name] = NodeState(name=name, state=state, reason=reason, by="" if by == "Unknown" else by)
    return list(found.values())
