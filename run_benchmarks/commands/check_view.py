"""Prints what the check found: a row per host, and a row per finding."""

from collections.abc import Mapping

from run_benchmarks.console.console import say
from run_benchmarks.console.language import words
from run_benchmarks.console.terminal import print_table
from run_benchmarks.inspection.findings import HostReport

SHOWN = 5
"""Hosts of one line."""


def show_reports(reports: Mapping[str, HostReport]) -> None:
    """Print the tables of the hosts and, if there are any, of the findings."""
    print_table(
        "", ("host", "verdict", "kernel", "Docker", "image", "devices", "clock", "interface"), _host_rows(reports)
    )
    every = [finding for report in reports.values() for finding in report.findings]
    findings = [finding for finding in every if finding.severity in ("failure", "warning")]
    if findings:
        rows = [
            (f.host, words(f.severity), *map(words.reason, (f.subject, f.found, f.expected, f.action)))
            for f in findings
        ]
        print_table("", ("host", "severity", "what", "found", "expected", "what to do"), rows)
    for said in not_seen(reports):
        say(words("Not looked at: {what}", what=said))


def as_data(reports: Mapping[str, HostReport]) -> dict[str, object]:
    """The reports for --json: the fields of each, and whether its host cannot take part."""
    return {"hosts": [{**vars(report), "failed": report.failed} for report in reports.values()]}


def not_seen(reports: Mapping[str, HostReport]) -> list[str]:
    """A sentence for each thing that could not be looked at: on which hosts, and why."""
    unseen: dict[tuple[str, str], list[str]] = {}
    for report in reports.values():
        for finding in report.unseen:
            unseen.setdefault((finding.subject, finding.found), []).append(finding.host)
    found = []
    for (subject, why), hosts in unseen.items():
        shown = ", ".join(hosts[:SHOWN])
        if len(hosts) > SHOWN:
            shown += " " + words("and {n} more", n=len(hosts) - SHOWN)
        found.append(words("{what} of {hosts}: {why}", what=words.reason(subject), hosts=shown, why=words.reason(why)))
    return found


def _host_rows(reports: Mapping[str, HostReport]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for report in reports.values():
        facts = report.facts
        verdict = words("failed" if report.failed else "ok")
        if facts is None:
            rows.append((report.host, verdict, "", "", "", "", "", ""))
            continue
        clock = f"{facts.clock_offset * 1000:+.0f} ms"
        devices = str(len(facts.devices))
        interface = facts.interface or ""
        images = ", ".join(
            f"{tag} {words('there' if image_id else 'to come')}" for tag, image_id in report.images.items()
        )
        docker = report.docker_version or ""
        rows.append((report.host, verdict, facts.kernel, docker, images, devices, clock, interface))
    return rows
