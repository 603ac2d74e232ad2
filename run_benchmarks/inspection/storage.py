"""Looks at the file systems of a host's folders before and after a round: one that ran full, or became read-only."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from common.shortening import few
from protocol.finding import PartFinding
from run_benchmarks.inspection.health import FREE_SOME, FULL_PERCENT, MOUNT_AGAIN, used_percents
from vendors.health import HostHealth

FULL, READ_ONLY = "full", "read-only"
SHOWN = 8
"""Folders of one host that are told: it may send anything."""
SHARED = re.compile(r"//|[^/]+:")
"""Begins the device of a file system of another machine: `//server/share`, `server:/export`."""


@dataclass(frozen=True)
class FileSystem:
    """The file system of a folder, as its host tells it: the device, and FULL, READ_ONLY or ""."""

    device: str
    state: str


def states_in(told: HostHealth) -> dict[str, FileSystem]:
    """The file systems by folder, of those that a host told by FILE_SYSTEMS."""
    locked = {*told.lines.get("image", ()), *told.lines.get("readonly", ())}
    full = {folder for _, folder, used in used_percents(told) if used >= FULL_PERCENT}
    return {
        folder: FileSystem(device, READ_ONLY if folder in locked else FULL if folder in full else "")
        for folder, device in told.of("device", 2)
    }


def storage_findings(
    host: str, before: Mapping[str, FileSystem], after: Mapping[str, FileSystem], data: Collection[str]
) -> Iterator[PartFinding]:
    """The file systems whose state became another between two looks. `data`: folders that are but read, of which a full
    one is a warning. One of another machine drains no host, for all that mount it see the same.
    """
    changed: defaultdict[FileSystem, list[str]] = defaultdict(list)
    for folder, its in after.items():
        if its.state and folder in before and not before[folder].state:
            changed[its].append(folder)
    for its, folders in changed.items():
        is_fault = its.state == READ_ONLY or not {*folders} <= {*data}
        names = few(folders, SHOWN)
        evidence, action = {
            FULL: (f"the file system of {names} ran full during the round: {FULL_PERCENT:g} % is used", FREE_SOME),
            READ_ONLY: (f"the file system of {names} became read-only during the round", MOUNT_AGAIN),
        }[its.state]
        yield PartFinding(
            part="host",
            hosts=(host,),
            kind="file_system",
            severity="fault" if is_fault else "warning",
            evidence=evidence,
            suggested_action=action,
            drained_hosts=(host,) if is_fault and not SHARED.match(its.device) else (),
            sentence=f"host {host}: {evidence}",
        )
