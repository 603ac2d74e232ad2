"""Reports of the check as a sound host gives them, for tests that change one thing."""

from typing import Any

from run_benchmarks.inspection.facts import HostFacts
from run_benchmarks.inspection.findings import HostReport


def facts(**changes: Any) -> HostFacts:
    """The facts of a host on which nothing is wrong, changed by `changes`."""
    values: dict[str, Any] = {
        "kernel": "Linux 6.1 x86_64",
        "hostname": "node",
        "user": "bench",
        "uid": 1000,
        "gid": 1000,
        "clock_offset": 0.0,
        "clock_error": 0.0,
        "writable": frozenset(),
        "unwritable": {},
        "free": {},
        "code": None,
        "code_listing": (),
        "has_docker_client": True,
        "python": "3.11.2",
        "missing_packages": (),
        "no_python": None,
        "networks": frozenset({"eth0"}),
        "link_devices": (),
        "has_powercap": False,
        "resolves": frozenset(),
        "interface": "eth0",
        "devices": (),
        "data": frozenset(),
        "listening": frozenset(),
    }
    return HostFacts(**values | changes)


def a_report(name: str, **changes: Any) -> HostReport:
    """The report of that host."""
    return HostReport(host=name, facts=facts(**changes))
