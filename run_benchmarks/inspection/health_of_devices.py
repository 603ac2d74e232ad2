"""Judges a host's accelerators: each vendor by what its part of the health script told, links by one rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from run_benchmarks.results.device_findings import are_links_lost
from vendors import working
from vendors.health import MAX_CHARACTERS, DeviceLinks, Found, HealthCheck, HostHealth, Severity


def health_checks() -> list[HealthCheck]:
    """The vendors' own: a host may have devices of any."""
    return [vendor.health for vendor in working() if vendor.health is not None]


def device_state(health: HostHealth, checks: Iterable[HealthCheck]) -> Iterator[Found]:
    """The findings of one host's accelerators."""
    for check in checks:
        yield from check.judge(health)
        for links in check.links:
            yield from _of_links(health, links)


def _of_links(health: HostHealth, links: DeviceLinks) -> Iterator[Found]:
    """Links that are down on a host on which others are up, and devices that show none there."""
    lines = health.of(links.key, 3)
    told = [(name, int(up), int(down)) for name, up, down in lines if up.isdecimal() and down.isdecimal()]
    active = [up for _, up, _ in told]
    for name, up, down in told:
        subject = f"{links.kind} {name[:MAX_CHARACTERS]}"
        if not up + down and any(active):  # where bridges join some devices, others have none
            how: Severity = "blind" if are_links_lost(0, 1, active) else "not seen"
            yield subject, "no link of it is shown", "links, as other devices of its host have", links.action, how
        if are_links_lost(up, down, active):
            is_proven = not links.may_lack or up < max(active)
            severity: Severity = "failure" if is_proven else "warning"
            yield subject, f"{down} of {up + down} {links.down}", "all active", links.action, severity
