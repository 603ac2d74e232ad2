"""The record of an acceptance, accept.json: its rungs, the state of each host, and what to take out of service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from common.statistics import OUTLYING

ACCEPT_FILE = "accept.json"
SCHEMA_VERSION = 9
Levels = Mapping[str, Mapping[str, "Usual"]]
"""By kind of hosts, and test."""
T = TypeVar("T")
HostState = Literal["accepted", "out", "comes and goes", "not tested"]


class RungRecord(BaseModel):
    """One rung. reasons: why it failed or was not run. runs: names of the runs that it made. out: hosts that it takes
    out, with the evidence of both occasions; unsteady: suspects that were not confirmed. not_run: tests that could not
    be made, and why, and what was measured and not judged. shrunk: what it did not look at, or less, as the budget had
    no room.
    seconds: how long it took, of which soak_seconds is the soak, again_seconds what was looked at again, tools_seconds
    that of tools of others, called as in tools, with NCCL Inspector; estimated_seconds: with these, without a soak or a
    second look, by estimated_from, an earlier acceptance or an "estimate".
    """

    model_config = ConfigDict(extra="forbid")

    rung: str
    verdict: Literal["pass", "fail", "not run"]
    reasons: list[str] = []
    hosts: list[str]
    runs: list[str] = []
    out: dict[str, list[str]] = {}
    unsteady: dict[str, list[str]] = {}
    not_run: list[str] = []
    shrunk: list[str] = []
    seconds: float = 0.0
    soak_seconds: float = 0.0
    again_seconds: float = 0.0
    tools: list[str] = []
    tools_seconds: float = 0.0
    estimated_seconds: float | None = None
    estimated_from: str = ""


class Usual(BaseModel):
    """The level of accepted devices of a kind in a test: median and scatter (as of a standard deviation), in `unit`."""

    model_config = ConfigDict(extra="forbid")

    unit: str
    median: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    scatter: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    devices: Annotated[int, Field(ge=1)]


def is_figure(value: object) -> TypeGuard[float]:
    """Whether what a host sent is a number that it can have measured, in whatever unit."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e18


def shortfall(
    values: Mapping[T, float], better: Literal["higher", "lower"], limit: float, then: Usual
) -> dict[T, float]:
    """By place, percent worse than a level, of those that are worse by more than `limit` percent of it and OUTLYING
    times its scatter.
    """
    sign, least = 1 if better == "higher" else -1, max(limit / 100 * then.median, OUTLYING * then.scatter)
    short = {place: sign * (then.median - value) for place, value in values.items()}
    return {place: 100 * by / then.median for place, by in short.items() if by > least}


class CaseLevels(BaseModel):
    """The levels of a case of the network or a training on accepted hosts. hosts, ranks of each, settings (the digest
    of the case's own) and kinds of hosts: only a case with the same is compared with it. figures: by figure, of hosts
    each by itself, or of all together.
    """

    model_config = ConfigDict(extra="forbid")

    hosts: int
    ranks: int
    settings: str
    kinds: str
    figures: dict[str, Usual] = {}


class WarningRecord(BaseModel):
    """A warning of the health check, which takes no host out. kind: the sentence, each number #, or its subject;
    count: hosts that have it, of which `hosts` names some ("-" is none), with what was said of each first, and last if
    that differs.
    """

    model_config = ConfigDict(extra="forbid")

    kind: str
    count: int
    hosts: dict[str, list[str]]


class AcceptRecord(BaseModel):
    """An acceptance. ready: every rung passed on every host. vendor_seen: devices of the vendor on which this program
    has run; empty: none, None: it has none. warnings: kinds that few hosts have come first; warnings_left_out: how many
    more there are. hosts: the state of each. again: by host that is out, the command that tests it after its repair.
    bundles: commands that pack the cases of the rungs that took hosts out, for the vendor. usual: by kind of hosts and
    device test; cases: the same of network and training; against: the record whose levels counted, too. missed:
    by host the checks of its health that did not run: what an accepted host is not known to pass.
    """

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    accept_id: str
    ready: bool
    vendor: str
    vendor_seen: str | None = None
    started_ms: int
    finished_ms: int
    rungs: list[RungRecord]
    hosts: dict[str, HostState]
    missed: dict[str, list[str]] = {}
    drain: dict[str, list[str]]
    commands: list[str]
    again: dict[str, str]
    bundles: list[str] = []
    nproc: int
    usual: dict[str, dict[str, Usual]] = {}
    cases: dict[str, CaseLevels] = {}
    against: str = ""
    warnings: list[WarningRecord] = []
    warnings_left_out: int = 0
