"""What the check found on one host: what keeps it from taking part, and what a person should know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from run_benchmarks.facts import HostFacts


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a host lacks (`failure`) or that a person should know (`warning`)."""

    host: str
    subject: str
    found: str
    expected: str
    action: str
    severity: Literal["failure", "warning"] = "failure"

    def __str__(self) -> str:
        return f"{self.host}: {self.subject}: found {self.found}; expected {self.expected}; {self.action}"


@dataclass(kw_only=True)
class HostReport:
    """What the check learnt of one host. `facts` is None where it could not be reached.

    `images` has the id of each image its cases need, by tag; None where the host lacks it.
    """

    host: str
    facts: HostFacts | None = None
    docker_version: str | None = None
    images: dict[str, str | None] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the host cannot take part."""
        return any(finding.severity == "failure" for finding in self.findings)

    def add(
        self, subject: str, found: str, expected: str, action: str, severity: Literal["failure", "warning"] = "failure"
    ) -> None:
        """Note a finding on this host."""
        finding = Finding(
            host=self.host, subject=subject, found=found, expected=expected, action=action, severity=severity
        )
        self.findings.append(finding)
