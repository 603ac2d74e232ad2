"""Judges the state of AMD's accelerators, as their driver and amd-smi told the health script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vendors.amd.health_script import SCRIPT
from vendors.health import (
    MEMORY_ERRORS,
    DeviceLinks,
    HealthCheck,
    Judge,
    Judged,
    count,
    is_below,
    judged_devices,
)  # fmt: skip


def _clocks(level: str, _: Sequence[str]) -> Judged:
    if level != "auto":
        action = "set power_dpm_force_performance_level, unless this is meant"
        yield f"its clocks are set to {level}", "auto", action, "warning"


def _power(value: str, _: Sequence[str]) -> Judged:
    now, _blank, usual = value.partition(" ")
    if is_below(now, usual):
        watts, most = (f"{float(each) / 1e6:g} W" for each in (now, usual))
        action = "lift the limit, unless this is meant"
        yield f"its power is limited to {watts}", f"{most}, its default", action, "warning"


def _pages(value: str, _: Sequence[str]) -> Judged:
    pending, _blank, failed = value.partition(" ")
    if failed.isdecimal() and int(failed):
        yield f"{failed} bad pages of its memory could not be retired", "none", "replace the device", "failure"
    elif pending.isdecimal() and int(pending):
        yield f"{pending} bad pages of its memory wait to be retired", "none", "reset the device", "warning"


def _throttled(why: str, _: Sequence[str]) -> Judged:
    """By heat or the board while no test runs: a failure; by its own power, which load brings: a warning."""
    is_heat = why == "PROCHOT" or why.endswith("_THERMAL")
    action = "check fans, airflow, coolant and power cables"
    yield f"its clocks are held down: {why}", "full clocks", action, "failure" if is_heat else "warning"


_JUDGES: Mapping[str, Judge] = {
    "clocks": _clocks,
    "power": _power,
    "memory_errors": MEMORY_ERRORS,
    "link_errors": count(
        "{} uncorrected errors of its links since the driver was loaded", "reset the host; check the board"
    ),
    "pages": _pages,
    "throttled": _throttled,
}


HEALTH = HealthCheck(
    script=SCRIPT,
    key="amd",
    kind="GPUs",
    judge=lambda health: judged_devices(health, "amd", _JUDGES),
    links=(
        DeviceLinks(
            key="xgmi",
            kind="accelerator",
            down="XGMI links are down",
            action="reset the host; check the board",
            may_lack=True,
        ),
    ),
    modules=("amdgpu",),
    kernel_log=("amdgpu.*(GPU reset begin|ring [^ ]+ timeout)",),
)
