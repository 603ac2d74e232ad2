"""A cluster that answers the runs of an acceptance as a test says: who is bad, who fails, what is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from protocol.finding import FindingKind, PartFinding
from run_benchmarks.acceptance.climb import Climb, EndedError, Looked, NoNodesError
from run_benchmarks.acceptance.estimate import Estimate
from run_benchmarks.acceptance.records import RungRecord
from run_benchmarks.acceptance.rungs import (
    RUNGS,
    Cases,
)
from run_benchmarks.acceptance.suspects import Suspects
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import CaseRecord, DrainEvidence, DrainRecord, RoundRecord, RunRecord, Verdict
from tests.run_benchmarks.results.network_rounds import a_round, case

NONE: Mapping[str, float] = MappingProxyType({})
HOSTS = [f"n{number}" for number in range(6)]


class Cluster:
    """Answers runs as a cluster with bad hosts would: by rung and occasion, who is named."""

    def __init__(self, bad: dict[str, list[set[str]]], sick: Suspects | None = None) -> None:
        self.bad, self.sick = bad, sick or {}
        self.asked: list[tuple[str, list[str], list[str]]] = []
        self.fails: set[str] = set()
        self.skipped: set[str] = set()
        self.ends: str | None = None
        self.drained: dict[str, set[str]] = {}
        self.refused, self.hides = "", False
        self.guilty: set[str] = set()
        self.falls_ill: dict[str, str] = {}
        self.kind: FindingKind = "constant"
        self.warns: list[Looked] = []
        self.rounds: dict[str, list[RoundRecord]] = {}
        self.sees: dict[str, list[PartFinding]] = {}
        self.steps: list[int] = []

    def run(self, name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        if name == self.ends:
            raise EndedError(f"run_{name} was interrupted")
        if not self.drained.get(name, set()).isdisjoint(hosts):
            self.refused = name
            raise NoNodesError(f"run_{name} got no nodes")
        self.refused = ""
        self.asked.append((name, list(cases), list(hosts)))
        self.steps += [each["overrides"]["max_steps"] for each in cases.values() if name.startswith("whole")]
        rung, occasion = name.rstrip("0123456789"), int(name[-1]) - 1
        named = self.bad.get(rung, [])
        drained = sorted((named[occasion] if occasion < len(named) else set()) & set(hosts))
        failed = name in self.fails or (rung == "whole" and not self.guilty.isdisjoint(hosts))
        verdict = Verdict.FAIL if failed else Verdict.DEGRADED if drained else Verdict.PASS
        if name in self.skipped:
            verdict = Verdict.SKIPPED
        like = DrainEvidence(
            case="C", rounds=[1], part="host", hosts=[], device="", kind=self.kind, evidence="", action=""
        )
        drain = [DrainRecord(host=host, reasons=[f"{name}: slow"], evidence=[like]) for host in drained]
        record = RunRecord(
            run_id="run1", verdict=verdict, exit_code=0, started_ms=0, finished_ms=1, command=[], runtime="process",
            vendor="cpu", code_digest="", git_revision=None, versions={}, hosts=[], drain=drain,
            cases=[self._case(verdict)],
        )  # fmt: skip
        seen = [a_round([]).model_copy(update={"findings": self.sees[name]})] if name in self.sees else []
        return LoadedRun(folder=Path(f"run_{name}"), record=record, rounds=self.rounds | {"SEES": seen})

    def gate(self, hosts: Sequence[str]) -> Looked:
        """The health after a run: `falls_ill` has by run whom it finds; after one that got no nodes one
        that is drained.
        """
        name = self.refused or self.asked[-1][0]
        sick = {host: ["XID: 79"] for host in hosts if self.falls_ill.get(name) == host}
        if self.refused and not self.hides:
            sick |= {host: ["Slurm: drained"] for host in [host for host in hosts if host in self.drained[name]][:1]}
        return Looked(sick=sick, warnings=self.warns.pop(0).warnings if self.warns else {})

    def _case(self, verdict: Verdict) -> CaseRecord:
        reason = "" if verdict.is_measured else "rank 0 failed"
        return case().model_copy(update={"verdict": verdict, "reason": reason})

    def climb(
        self, hosts: list[str] | None = None, budget: float = 3600.0, expected: Mapping[str, float] = NONE
    ) -> Climb:
        made = self.begun(hosts, budget, expected)
        for rung in RUNGS:
            made.step(rung)
        return made

    def begun(
        self, hosts: list[str] | None = None, budget: float = 3600.0, expected: Mapping[str, float] = NONE
    ) -> Climb:
        """A climb before its first rung."""
        return Climb(
            vendor="cpu",
            nproc=1,
            hosts=hosts or HOSTS,
            budget_s=budget,
            run=self.run,
            examine=lambda names: Looked(sick=self.sick, unseen=["clock of n0: no tool"] if self.sick else []),
            gate=self.gate,
            expected={rung: Estimate(seconds=seconds, source="estimate") for rung, seconds in expected.items()},
        )


def reason(rung: RungRecord) -> str:
    """The reasons of a rung in one line."""
    return "; ".join(rung.reasons)


def fault(*hosts: str, drained: bool = False, **more: object) -> PartFinding:
    """A bad link between two hosts, or what `more` says."""
    found = PartFinding(
        part="link",
        hosts=hosts,
        kind="constant",
        evidence="60 % slow",
        suggested_action="check the cables",
        drained_hosts=hosts if drained else (),
        sentence=f"pair {'-'.join(hosts)}: 60 % slow",
    )
    return found.model_copy(update=more)
