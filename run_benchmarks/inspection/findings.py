"""Collects the findings of the check on one host: errors that exclude it, and notes for the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from run_benchmarks.inspection.facts import HostFacts


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a host lacks (`failure`) or that a person should know (`warning`). `case`: it matters to that alone."""

    host: str
    subject: str
    found: str
    expected: str
    action: str
    severity: Literal["failure", "warning"] = "failure"
    case: str | None = None

    def __str__(self) -> str:
        return f"{self.host}: {self.subject}: found {self.found}; expected {self.expected}; {self.action}"


@dataclass(frozen=True, kw_only=True)
class SpaceNeed:
    """What is to go into a folder, in bytes, and what is free on its file system, mounted at `mount`."""

    folder: str
    mount: str
    free: int
    need: int
    what: str


@dataclass(kw_only=True)
class HostReport:
    """What the check learnt of one host. `facts` is None where it could not be reached.

    `barred` has, by case, why the host cannot take part in that one. `images` has the id of each image its cases need,
    by tag; None where the host lacks it; `image_sizes` those of images that are there. `docker_root`: where images go.
    """

    host: str
    facts: HostFacts | None = None
    docker_version: str | None = None
    images: dict[str, str | None] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    barred: dict[str, str] = field(default_factory=dict)
    image_sizes: dict[str, int] = field(default_factory=dict)
    docker_root: SpaceNeed | None = None
    needs: list[SpaceNeed] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the host cannot take part in any case."""
        return any(finding.severity == "failure" and finding.case is None for finding in self.findings)

    @property
    def reason(self) -> str:
        """Why it failed: its failures in a line."""
        failures = [each for each in self.findings if each.severity == "failure" and each.case is None]
        return "; ".join(f"{each.subject}: {each.found}" for each in failures)

    def bar(self, case: str, subject: str, found: str, expected: str, action: str, *, is_planned: bool) -> None:
        """Keep the host out of one case: a failure of that case where it was to run there, a warning for a spare."""
        finding = Finding(
            host=self.host,
            subject=subject,
            found=found,
            expected=expected,
            action=action,
            severity="failure" if is_planned else "warning",
            case=case,
        )
        self.findings.append(finding)
        self.barred[case] = f"{self.host}: {subject}: {found}"

    def add(
        self, subject: str, found: str, expected: str, action: str, severity: Literal["failure", "warning"] = "failure"
    ) -> None:
        """Note a finding on this host."""
        finding = Finding(
            host=self.host, subject=subject, found=found, expected=expected, action=action, severity=severity
        )
        self.findings.append(finding)
