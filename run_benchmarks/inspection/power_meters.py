"""Mounts that let a monitor's container measure the power of the whole machine; its workload gets none of them."""

from __future__ import annotations

from dataclasses import replace

from run_benchmarks.inspection.facts import HostFacts
from run_benchmarks.plan.plan import POWERCAP_MOUNTS
from run_benchmarks.runtimes.base import Bound


def with_power_meters(bound: Bound, facts: HostFacts) -> Bound:
    """`bound` with the host's power meters: RAPL's counters, read-only, and the controller's (IPMI) devices.

    The host decides who may use them: the monitor runs as the login's user, with that user's groups.
    """
    return replace(
        bound,
        mounts=(*bound.mounts, *(POWERCAP_MOUNTS if facts.has_powercap else ())),
        devices=(*bound.devices, *(f"{path}:{path}:rw" for path in facts.ipmi_devices)),
        groups=(*bound.groups, *facts.power_groups),
    )
