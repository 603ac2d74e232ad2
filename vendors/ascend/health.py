"""Judges the state of Huawei's NPUs, as npu-smi and hccn_tool told the health script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vendors.ascend.health_script import SCRIPT
from vendors.health import MEMORY_ERRORS, HealthCheck, Judge, Judged, count, judged_devices


def _alarm(said: str, _: Sequence[str]) -> Judged:
    is_failure = not said.startswith(("Warning", "UNKNOWN"))
    action = "follow the vendor's list of error codes"
    yield f"its health is {said}", "OK", action, "failure" if is_failure else "warning"


def _link(state: str, of_host: Sequence[str]) -> Judged:
    """Down beside others that are up it is broken; a host of which none is up may have no network there."""
    if state != "UP":
        links = [words[0] for words in map(str.split, of_host) if words]
        are_up = 2 * links.count("UP") > len(links)
        action = "check cable, optics and switch port"
        yield f"its link is {state}", "UP", action, "failure" if are_up else "warning"


_JUDGES: Mapping[str, Judge] = {
    "memory_errors": MEMORY_ERRORS,
    "isolated_pages": count("{} isolated pages of its memory", "replace it if they become more"),
    "alarm": _alarm,
    "link": _link,
}


HEALTH = HealthCheck(
    script=SCRIPT,
    key="ascend",
    kind="NPUs",
    judge=lambda health: judged_devices(health, "ascend", _JUDGES),
)
