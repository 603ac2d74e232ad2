"""The record of an acceptance, accept.json: its rungs, the state of each host, and what to take out of service."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

ACCEPT_FILE = "accept.json"
SCHEMA_VERSION = 1
HostState = Literal["accepted", "out", "comes and goes", "not tested"]


class RungRecord(BaseModel):
    """One rung. runs: names of the runs that it made. out: hosts that it takes out, with the evidence of both
    occasions; unsteady: suspects that the second occasion did not name. seconds: how long it took.
    """

    model_config = ConfigDict(extra="forbid")

    rung: str
    verdict: Literal["pass", "fail", "not run"]
    reason: str = ""
    hosts: list[str]
    runs: list[str] = []
    out: dict[str, list[str]] = {}
    unsteady: dict[str, list[str]] = {}
    seconds: float = 0.0


class AcceptRecord(BaseModel):
    """An acceptance. ready: every rung passed on every host. hosts: the state of each. again: tests a repaired host."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    accept_id: str
    ready: bool
    vendor: str
    started_ms: int
    finished_ms: int
    rungs: list[RungRecord]
    hosts: dict[str, HostState]
    drain: dict[str, list[str]]
    commands: list[str]
    again: str
