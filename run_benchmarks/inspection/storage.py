"""Looks at the file systems of a host's folders before and after a round: one that ran full, or became read-only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from protocol.finding import PartFinding
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.health import FULL_PERCENT

SECONDS = 30.0
FULL, READ_ONLY = "full", "read-only"
SPACE = re.compile(r"space ([0-9]{1,18}) ([0-9]{1,18}) (.+)")
# Arguments: folders. Of each that is there a line: `read-only FOLDER`, or `space BLOCKS FREE FOLDER` and the same of
# its inodes. A dead mount costs each command its time, and the look ends before the others.
SCRIPT = r"""
for folder; do
  [ -d "$folder" ] || continue
  case ,$(timeout 5 findmnt -nro OPTIONS -T "$folder" 2>/dev/null), in
    *,ro,* | *,emergency_ro,*) echo "read-only $folder"; continue ;;
  esac
  for unit in k i; do
    timeout 5 df -P$unit "$folder" 2>/dev/null | awk -v name="$folder" 'NR == 2 {print "space", $2, $4, name}'
  done
done
"""


def states_of(host: Host, folders: Sequence[str]) -> dict[str, str]:
    """FULL, READ_ONLY or "" by folder, of those that the host tells.

    Raises:
        HostError: the host does not answer.
    """
    found: dict[str, str] = {}
    for line in host.run(["sh", "-c", SCRIPT, "sh", *folders], deadline=SECONDS, check=False).stdout.splitlines():
        key, _, folder = line.partition(" ")
        if key == READ_ONLY and folder in folders:
            found[folder] = READ_ONLY
        elif (told := SPACE.fullmatch(line)) and told[3] in folders:
            total, free, folder = int(told[1]), int(told[2]), told[3]
            is_full = total > 0 and 100 * (1 - free / total) >= FULL_PERCENT
            found[folder] = FULL if is_full else found.get(folder, "")
    return found


def storage_findings(
    host: str, before: Mapping[str, str], after: Mapping[str, str], data: Collection[str]
) -> Iterator[PartFinding]:
    """The folders whose state became another between two looks; `data`: those that are but read, a warning if full."""
    for folder, state in after.items():
        if not state or before.get(folder) != "":
            continue
        is_fault = state == READ_ONLY or folder not in data
        evidence = {
            FULL: f"the file system of {folder} ran full during the round: {FULL_PERCENT:g} % is used",
            READ_ONLY: f"the file system of {folder} became read-only during the round",
        }[state]
        action = "free some" if state == FULL else "look for disk errors in the kernel log; check and mount again"
        yield PartFinding(
            part="host",
            hosts=(host,),
            kind="file_system",
            severity="fault" if is_fault else "warning",
            evidence=evidence,
            suggested_action=action,
            drained_hosts=(host,) if is_fault else (),
            sentence=f"host {host}: {evidence}",
        )
