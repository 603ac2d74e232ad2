"""Collects the findings of the check on one host: errors that exclude it, and notes for the user."""

from __future__ import annotations

from dataclasses import dataclass, field

from run_benchmarks.inspection.facts import HostFacts
from vendors.health import Severity


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault or a gap that the check found on a host; `case` names the only case that it concerns.

    Its severity: `failure` excludes the host, a person should know of a `warning`, `not seen` could not be looked at,
    `in part` only partly, and `blind` not at all although no host is accepted without it.
    """

    host: str
    subject: str
    found: str
    expected: str
    action: str
    severity: Severity = "failure"
    case: str | None = None

    def __str__(self) -> str:
        return f"{self.host}: {self.subject}: found {self.found}; expected {self.expected}; {self.action}"


@dataclass(frozen=True, kw_only=True)
class SpaceNeed:
    """The space needed in a folder, in bytes, and the free space of its file system, mounted at `mount`."""

    folder: str
    mount: str
    free: int
    need: int
    what: str


@dataclass(kw_only=True)
class HostReport:
    """Results of the check for one host. `facts` is None if it could not be reached.

    `barred` has, by case, why the host cannot take part in it. `images` has the id of each image its cases need, by
    tag; None if the host lacks it; `image_sizes` the bytes of those it has. `docker_root`: where images are stored.
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
    def unseen(self) -> list[Finding]:
        """The findings that tell what could not be looked at."""
        return [each for each in self.findings if each.severity in ("in part", "not seen", "blind")]

    @property
    def missed(self) -> list[str]:
        """The checks that could not run, without which a host is accepted all the same."""
        return list(dict.fromkeys(each.subject for each in self.findings if each.severity == "not seen"))

    @property
    def blind_to(self) -> list[str]:
        """The things that could not be looked at without which no host is accepted, each with why."""
        found = (each for each in self.findings if each.severity == "blind")
        return list(dict.fromkeys(f"{each.subject}: {each.found}" for each in found))

    @property
    def objections(self) -> list[str]:
        """Its failures, each with what to do."""
        return [f"{each.subject}: {each.found}: {each.action}" for each in self._failures]

    @property
    def reason(self) -> str:
        """Its failures in one line."""
        return "; ".join(f"{each.subject}: {each.found}" for each in self._failures)

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """Its warnings that concern every case: the subject, and what was found with what to do."""
        found = (each for each in self.findings if each.severity == "warning" and each.case is None)
        return [(each.subject, f"{each.found}: {each.action}") for each in found]

    @property
    def _failures(self) -> list[Finding]:
        return [each for each in self.findings if each.severity == "failure" and each.case is None]

    def bar(self, case: str, subject: str, found: str, expected: str, action: str, *, is_planned: bool) -> None:
        """Exclude the host from one case: a failure of that case if it was to run there, a warning for a spare."""
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

    def add(self, subject: str, found: str, expected: str, action: str, severity: Severity = "failure") -> None:
        """Add a finding on this host."""
        finding = Finding(
            host=self.host, subject=subject, found=found, expected=expected, action=action, severity=severity
        )
        self.findings.append(finding)
