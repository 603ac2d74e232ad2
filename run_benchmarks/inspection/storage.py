"""Looks at the file systems of a host's folders before and after a round: one that ran full, or became read-only."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from protocol.finding import PartFinding
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.health import FULL_PERCENT

SECONDS = 30.0
FULL, READ_ONLY = "full", "read-only"
SPACE = re.compile(r"space ([0-9]{1,18}) ([0-9]{1,18}) (\S+) (.+)")
SHARED = re.compile(r"//|[^/]+:")
"""Begins the device of a file system of another machine: `//server/share`, `server:/export`."""
# Arguments: folders. Of each that is there `space BLOCKS FREE DEVICE FOLDER`, the same of its inodes, and, of one that
# cannot be written, `read-only FOLDER`. A dead mount costs each command its time, and the look ends before the others.
SCRIPT = r"""
for folder; do
  [ -d "$folder" ] || continue
  for unit in k i; do
    timeout 5 df -P$unit "$folder" 2>/dev/null | awk -v name="$folder" 'NR == 2 {print "space", $2, $4, $1, name}'
  done
  case ,$(timeout 5 findmnt -nro OPTIONS -T "$folder" 2>/dev/null), in
    *,ro,* | *,emergency_ro,*) echo "read-only $folder" ;;
  esac
done
"""


@dataclass(frozen=True)
class FileSystem:
    """The file system of a folder, as its host tells it: the device, and FULL, READ_ONLY or ""."""

    device: str
    state: str


def states_of(host: Host, folders: Sequence[str]) -> dict[str, FileSystem]:
    """The file systems by folder, of those that the host tells.

    Raises:
        HostError: the host does not answer.
    """
    found: dict[str, FileSystem] = {}
    for line in host.run(["sh", "-c", SCRIPT, "sh", *folders], deadline=SECONDS, check=False).stdout.splitlines():
        key, _, folder = line.partition(" ")
        if key == READ_ONLY and folder in found:
            found[folder] = FileSystem(found[folder].device, READ_ONLY)
        elif (told := SPACE.fullmatch(line)) and told[4] in folders:
            total, free, device, folder = int(told[1]), int(told[2]), told[3], told[4]
            is_full = total > 0 and 100 * (1 - free / total) >= FULL_PERCENT
            if is_full or folder not in found:
                found[folder] = FileSystem(device, FULL if is_full else "")
    return found


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
        names = ", ".join(folders)
        evidence = {
            FULL: f"the file system of {names} ran full during the round: {FULL_PERCENT:g} % is used",
            READ_ONLY: f"the file system of {names} became read-only during the round",
        }[its.state]
        yield PartFinding(
            part="host",
            hosts=(host,),
            kind="file_system",
            severity="fault" if is_fault else "warning",
            evidence=evidence,
            suggested_action="free some"
            if its.state == FULL
            else "look for disk errors in the kernel log; check and mount again",
            drained_hosts=(host,) if is_fault and not SHARED.match(its.device) else (),
            sentence=f"host {host}: {evidence}",
        )
