"""Detects names of HOSTS that refer to the same machine, from identifiers that the machines report.

One machine is one running kernel and one network namespace in it: data between two ranks there crosses no wire, and
they share cores and accelerators. Clones of one disk share machine-id and host key but never the kernel's boot id;
containers with networks of their own share the boot id: they count as hosts, with a remark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from run_benchmarks.inspection.facts import MachineIdentity
from run_benchmarks.inspection.findings import HostReport

SHARED_KERNEL = "shared kernel"
SHOWN_MACS = 3
_Named = tuple[str, MachineIdentity]


def share_a_kernel(one: MachineIdentity, other: MachineIdentity) -> bool:
    """Whether both run on the same kernel, as far as they report it."""
    return one.boot_id != "" and one.boot_id == other.boot_id


def are_one_machine(one: MachineIdentity, other: MachineIdentity) -> bool:
    """Whether both are the same network namespace of the same kernel.

    The number of the first network namespace is nearly the same on every kernel, and machines restored from one
    snapshot of a running one share the boot id, too: they differ by their hardware addresses.
    """
    if not share_a_kernel(one, other) or one.netns != other.netns:
        return False
    return bool(one.macs & other.macs) or one.macs == other.macs


def note_shared_machines(reports: Mapping[str, HostReport]) -> None:
    """Add a failure to each name whose machine has an earlier name; a warning where a kernel is shared.

    The first name of a machine stays valid, so that a run on fewer hosts (MIN_HOSTS) can continue with it.
    """
    for first, second in _sharing(reports):
        one, other = first[1], second[1]
        report = reports[second[0]]
        if are_one_machine(one, other):
            report.add(
                "machine",
                f"the same machine as {first[0]} ({evidence(one, other)})",
                "a different machine for each name of HOSTS",
                f"write one of the two names, {first[0]} or {second[0]}, in HOSTS",
            )
        else:
            report.add(
                SHARED_KERNEL,
                f"the kernel of {first[0]} (boot-id {one.boot_id}), with a network of its own",
                "a machine of its own",
                "data between containers or namespaces of one machine crosses no wire",
                "warning",
            )


def _sharing(reports: Mapping[str, HostReport]) -> Iterator[tuple[_Named, _Named]]:
    """Pairs of hosts on one kernel, in the order of HOSTS: each host with the first of its machine, else of its kernel.

    Near-linear in hosts: only those of one network namespace are compared with each other.
    """
    kernels: dict[str, _Named] = {}
    spaces: dict[tuple[str, str], list[_Named]] = {}
    for name, report in reports.items():
        if report.facts is None or not report.facts.identity.boot_id:
            continue
        host = (name, report.facts.identity)
        space = spaces.setdefault((host[1].boot_id, host[1].netns), [])
        same = next((earlier for earlier in space if are_one_machine(earlier[1], host[1])), None)
        first = same or kernels.setdefault(host[1].boot_id, host)
        space.append(host)
        if first is not host:
            yield first, host


def evidence(one: MachineIdentity, other: MachineIdentity) -> str:
    """The values that both have in common, in words."""
    shared = [("boot-id", one.boot_id, other.boot_id), ("machine-id", one.machine_id, other.machine_id)]
    shared += [
        ("network namespace", one.netns, other.netns),
        ("SSH host key", one.host_key[-16:], other.host_key[-16:]),
    ]
    words = [f"{what} {mine}" for what, mine, theirs in shared if mine and mine == theirs]
    if macs := sorted(one.macs & other.macs):
        words.append(f"MAC {', '.join(macs[:SHOWN_MACS])}" + (" ..." if len(macs) > SHOWN_MACS else ""))
    return "; ".join(words)
