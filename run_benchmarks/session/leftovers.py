"""Removes from the hosts what is on the head node: for each attempt at a round and each host, on its record's evidence.

The evidence is a round.json that can be read, that says of the host's part that everything was collected, and whose
files are on this disk. Everything else stays: an attempt without a record, a file that is missing here, other tasks.
"""

import io
import os
from collections.abc import Mapping
from pathlib import Path

from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.results.records import RECORD_FILE, CollectedFile, read_round
from run_benchmarks.results.seal import node_folder

SECONDS = 60.0
# Arguments: the run's folder, the host's name in the plan. Input: the folders to remove, relative to the first, a line
# each. Prints the host's own folders that remain: a shared home holds the other hosts' folders, too.
# The settings of the cases are always removed: no rank reads them any more, and they may hold secrets.
SCRIPT = r"""
cd "$1" 2>/dev/null || exit 0
while IFS= read -r folder; do
    rm -rf "./$folder" || exit
    for task in "./$folder".workload "./$folder".monitor; do
        [ ! -e "$task/exit.json" ] || rm -rf "$task" || exit
    done
done
rm -f ./*/*.json || exit
find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null
for folder in ./*/*/"$2"_noderank[0-9]*; do
    [ ! -e "$folder" ] || echo "${folder#./}"
done
"""


def remove_collected(hosts: Mapping[str, Host], root: str, result_dir: Path, ways: str) -> None:
    """Remove from `root`, the run's folder on these hosts, what `collected_folders` names; log where others remain.

    `ways`: the commands that fetch or remove the rest, for the message.
    """
    collected = collected_folders(result_dir)

    def remove(host: Host) -> list[str]:
        lines = "".join(f"{folder}\n" for folder in collected.get(host.name, ()))
        argv = ["sh", "-c", SCRIPT, "sh", root, host.name]
        return host.run(argv, stdin=io.BytesIO(lines.encode()), deadline=SECONDS).stdout.splitlines()

    result = for_each(hosts, remove, reads_hosts=True)
    for name, left in result.succeeded.items():
        if left:
            LOG.warning("%s: not everything was collected; the rest stays in %s until %s", name, root, ways)
    for error in result.failed.values():
        LOG.warning("%s; what is left there stays in %s until %s", error, root, ways)


def collected_folders(result_dir: Path) -> dict[str, list[str]]:
    """By host, the folders of its nodes whose files are all here, by their records; relative to the run's folder."""
    found: dict[str, list[str]] = {}
    for path in sorted(result_dir.glob(f"*/round*/{RECORD_FILE}")):
        record = read_round(path.parent)
        for node in record.nodes if record is not None else ():
            folder = path.parent / node_folder(node.host, node.node_rank)
            if node.files and not node.incomplete and _are_here(folder, node.files, result_dir):
                found.setdefault(node.host, []).append(folder.relative_to(result_dir).as_posix())
    return found


def _are_here(folder: Path, files: Mapping[str, CollectedFile], result_dir: Path) -> bool:
    """Whether these files of a node have the recorded sizes, and outlast a power loss together with their folders."""
    try:
        for name, file in files.items():
            if _kept_bytes(folder / name) != file.size:
                return False
        for parent in {parent for name in files for parent in (folder / name).parents}:
            if parent.is_relative_to(result_dir):
                _kept_bytes(parent)
    except OSError:
        return False
    return True


def _kept_bytes(path: Path) -> int:
    """The size of a file or folder, which is on the disk after this call."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
