"""Checks that a host has the capacity its cases need: disk space, memory, idle cores and devices."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from common.shortening import few
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.facts import SECONDS, HostFacts, read_space
from run_benchmarks.inspection.findings import HostReport, SpaceNeed
from run_benchmarks.plan.plan import CasePlan, Plan
from run_benchmarks.settings.settings import Settings

GB = 1e9
BUSY_LOAD = 0.5  # runnable tasks per core: above, the user is warned
CODE_BYTES = 64 << 20
# Logs of a run stay on the host until its end: a share for the monitor, and for each rank of each round, up to a limit.
LOG_BYTES, RANK_LOG_BYTES, MAX_LOG_BYTES = 256 << 20, 16 << 20, 4 << 30
UNKNOWN_IMAGE_BYTES = 4 << 30
IMAGE_FACTOR = 1.5  # an engine holds a layer twice while it unpacks it
SHOWN_CHARACTERS = 32
SHOWN_PROCESSES = 3


def check_load(report: HostReport, facts: HostFacts, limit: float | None) -> None:
    """Check a busy host's load: a failure above `limit` (MAX_LOAD, runnable tasks per core), if set, else a warning."""
    if facts.load is None:
        return
    a_core = facts.load / facts.cores
    if a_core > (BUSY_LOAD if limit is None else limit):
        report.add(
            "load",
            f"{facts.load:.1f} on {facts.cores} cores, {a_core:.2f} per core, over the last minute",
            f"at most {BUSY_LOAD:g} per core" if limit is None else f"at most {limit:g} per core (MAX_LOAD)",
            "look at its processes (top), and wait for them or end them",
            "warning" if limit is None else "failure",
        )


def check_strangers(report: HostReport, facts: HostFacts, *, allowed: bool) -> None:
    """Check for foreign processes: any process on the accelerators before a run is foreign."""
    found = facts.accelerator_processes
    if not found:
        return
    words = few([*map(_pid_and_program, found)], SHOWN_PROCESSES, "; ")
    report.add(
        "accelerator processes",
        f"{len(found)} at work: {words}",
        "idle devices",
        "end them, use another host, or set ALLOW_BUSY_DEVICES = True",
        "warning" if allowed else "failure",
    )


def _pid_and_program(line: str) -> str:
    """`4711 python3` of a driver's line `4711, /usr/bin/python3 x.py --token ..., 890 MiB`: no arguments."""
    pid, _, rest = line.partition(",")
    program = (rest.split() or ["?"])[0].rstrip(",").rpartition("/")[2]
    return f"{pid.strip()[:SHOWN_CHARACTERS]} {program[:SHOWN_CHARACTERS]}"


def check_sizes(report: HostReport, facts: HostFacts, cases: Iterable[CasePlan]) -> None:
    """Exclude the host from cases whose smallest memory need exceeds its memory."""
    for case in cases:
        if case.memory is None:
            continue
        least = case.memory.bytes_per_rank
        on_devices = case.backend != "gloo" and bool(facts.device_free)
        if on_devices:
            have, need, where = min(facts.device_free[: case.nproc]), least, "on the device with the least free memory"
        elif case.backend == "gloo" and facts.memory_available is not None:
            have, need, where = facts.memory_available, least * case.nproc, "of memory available"
        else:
            continue
        if need > have:
            report.bar(
                case.name,
                "memory",
                f"{have / GB:.1f} GB {where}",
                f"{need / GB:.1f} GB at least for {case.memory.purpose}"
                + ("" if on_devices else f", once for each of {case.nproc} ranks"),
                f"{case.memory.remedy} of case {case.name}",
                is_planned=report.host in case.hosts,
            )


def need_folders(report: HostReport, facts: HostFacts, plan: Plan) -> None:
    """Record the space that code and logs need in their folders."""
    code, logs = str(Path(plan.code_dir_host).parent), str(Path(plan.log_root_host).parent)
    nodes = [node for case in plan.cases for each in case.rounds for node in each.nodes if node.host == report.host]
    for_logs = min(MAX_LOG_BYTES, LOG_BYTES + RANK_LOG_BYTES * sum(len(node.ranks) for node in nodes))
    for_code = 0 if facts.code == plan.code_digest else CODE_BYTES
    for folder, need, what in ((code, for_code, "the code"), (logs, for_logs, "logs")):
        if folder in facts.free:
            report.needs.append(
                SpaceNeed(
                    folder=folder, mount=facts.mounts.get(folder, folder), free=facts.free[folder], need=need, what=what
                )
            )


def look_at_image_folder(report: HostReport, host: Host, folder: str) -> None:
    """Read the free space (bytes) where a host stores images that it lacks."""
    try:
        space = read_space(host.run(["df", "-Pk", folder], deadline=SECONDS).stdout)
    except HostError as error:
        action = f"look there: df {shlex.quote(folder)}"
        report.add("free disk", f"not known of {folder} ({error})", "room for the image", action, "warning")
        return
    if space is not None:
        report.docker_root = SpaceNeed(folder=folder, mount=space[1], free=space[0], need=0, what="")


def note_space(reports: Mapping[str, HostReport], settings: Settings, image_bytes: int) -> None:
    """Compare the free space of each file system with the sum of its needs; a host that has an image provides its size.

    Args:
        image_bytes: unpacked size of the vendor's own image.
    """
    known: dict[str, int] = {}
    for report in reports.values():
        for tag, size in report.image_sizes.items():
            known[tag] = max(size, known.get(tag, 0))
    is_vendors = settings.test.IMAGE is None and settings.test.BASE_IMAGE is None
    guess = image_bytes if is_vendors else UNKNOWN_IMAGE_BYTES
    for report in reports.values():
        root = report.docker_root
        for tag in [tag for tag, image_id in report.images.items() if image_id is None and root is not None]:
            assert root is not None
            size = known.get(tag) or guess
            what = f"image {tag} ({size / GB:.1f} GB{'' if tag in known else ', estimated'})"
            report.needs.append(replace(root, need=int(IMAGE_FACTOR * size), what=what))
        _compare(report)


def _compare(report: HostReport) -> None:
    mounts: dict[str, list[SpaceNeed]] = {}
    for need in report.needs:
        if need.need:
            mounts.setdefault(need.mount, []).append(need)
    for mount, needs in mounts.items():
        free, total = min(need.free for need in needs), sum(need.need for need in needs)
        if free < total:
            parts = "; ".join(f"{need.need / GB:.2f} GB for {need.what} in {need.folder}" for need in needs)
            report.add(
                "free disk",
                f"{free / GB:.2f} GB on the file system of {mount}",
                f"{total / GB:.2f} GB: {parts}",
                "free some space there",
            )
