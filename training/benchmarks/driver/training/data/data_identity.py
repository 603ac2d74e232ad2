"""Identifies the data files of a run by their hashes: the ranks share the reading, all nodes must have the same.

Needs no torch.
"""

import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.shortening import few
from protocol import pulse
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.file_hashes import FileHashes, HashCache, Hashing, combined_sha256
from training.benchmarks.driver.workload.placement import Peers

# File systems of one machine alone: what lies there on two nodes are two files, even if all their facts are equal.
LOCAL_FILE_SYSTEMS = {
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "overlay", "ramfs", "squashfs",
    "tmpfs", "ubifs", "vfat", "xfs", "zfs",
}  # fmt: skip
_SHOWN_SECONDS = 30.0
_POLL_SECONDS = 0.5
_SHOWN_FILES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class DataIdentity:
    """The files that a run reads, by their path in the data folder, each with `size` in bytes and `sha256` in hex; one
    of which an md5 is published also with `md5` and `published_md5`.
    """

    files: dict[str, dict[str, str | int]]

    @property
    def sha256(self) -> str | None:
        """One hash over names and contents, in hex; None for data that is made on the fly."""
        return combined_sha256({name: str(each["sha256"]) for name, each in self.files.items()}) if self.files else None


def identify(
    files: Sequence[Path],
    root: Path,
    group: Peers,
    cache: Path | None,
    published_md5: Mapping[str, str] | None = None,
) -> DataIdentity:
    """The identity of `files`, below the folder `root` or elsewhere; all ranks call it with the same names.

    The ranks of a node share its files; in a folder that all nodes share all ranks do. Meanwhile the ranks keep in
    touch, so that no time limit of the process group is hit, and rank 0 tells how far it is every 30 s.

    Args:
        cache: the folder in which this host remembers hashes; None: nowhere.
        published_md5: md5 that a publisher states of files, by path below `root`. Rank 0 says which files differ.

    Raises:
        DataError: a file cannot be read, or differs from that of the same name on another node.
    """
    if not files:
        return DataIdentity(files={})
    place = group.placement
    node = place.rank // place.local_world_size
    names = {_name(path, root): path for path in files}
    facts = [(name, *_facts(path)) for name, path in sorted(names.items())]
    is_shared = place.nnodes > 1 and _is_same(group, [facts, all(map(_is_remote, names.values()))])
    first, count = (0, place.world_size) if is_shared else (node * place.local_world_size, place.local_world_size)
    by_size = sorted(names, key=lambda name: (-names[name].stat().st_size, name))
    own = by_size[place.rank - first :: count]
    published = {name: md5 for name, md5 in (published_md5 or {}).items() if name in names}
    digests, problems = _hashed({name: names[name] for name in own}, cache, group, published)
    of_nodes = _joined(group.gathered((0 if is_shared else node, digests, problems)), root)
    _compare(of_nodes, root)
    described: dict[str, dict[str, str | int]] = {
        name: {"size": size, "sha256": of_nodes[0][name].sha256} for name, size, *_ in facts
    }
    for name, md5 in published.items():
        described[name] |= {"md5": of_nodes[0][name].md5 or "", "published_md5": md5}
    if place.rank == 0:
        _tell_unpublished(described, root)
    return DataIdentity(files=described)


def refuse_repeated(identity: DataIdentity, root: Path, train: Sequence[Path], evaluation: Sequence[Path]) -> None:
    """Check that no content is trained twice in an epoch, and none both trained and evaluated.

    Raises:
        DataError: it is; the message names the files.
    """
    seen: dict[object, tuple[Path, str]] = {}
    of_role = ((train, "trains"), (evaluation, "evaluates"))
    for path, what in ((path, what) for paths, what in of_role for path in paths):
        facts = identity.files.get(_name(path, root))
        if facts is None or not facts["size"]:
            continue
        other, before = seen.setdefault(facts["sha256"], (path, what))
        if (other, before) == (path, what):
            continue
        which = "this file" if other == path else f"{_name(other, root)}, which has the same content"
        wrong = f"it evaluates on what it {before}" if before != what else "its samples would count twice"
        raise DataError(path, f"the run also {before} {which}: {wrong}; identify_data = False allows it")


def _tell_unpublished(described: Mapping[str, Mapping[str, str | int]], root: Path) -> None:
    """Tell which files are not those that their publisher states an md5 of."""
    for name, facts in described.items():
        md5, stated = facts.get("md5"), facts.get("published_md5")
        if md5 != stated:
            sys.stderr.write(f"{root / name}: is not the published file: its md5 is {md5}, not {stated}\n")


def _joined(every: Sequence[Any], root: Path) -> dict[int, dict[str, FileHashes]]:
    """Hashes by node and name, from the (node, hashes, problems) of all ranks."""
    broken = [problem for _, _, of_rank in every for problem in of_rank]
    if broken:
        raise DataError(str(root), "; ".join(broken[:_SHOWN_FILES]))
    of_nodes: dict[int, dict[str, FileHashes]] = {}
    for node, found, _ in every:
        of_nodes.setdefault(node, {}).update(found)
    return of_nodes


def _compare(of_nodes: Mapping[int, Mapping[str, FileHashes]], root: Path) -> None:
    """Check that each node has the files of the first one."""
    differing = [
        f"node {node} has another {name} than node 0: sha256 {_start(found.get(name))}, there {_start(hashes)}"
        for node, found in sorted(of_nodes.items())
        for name, hashes in sorted(of_nodes[0].items())
        if name not in found or found[name].sha256 != hashes.sha256
    ]
    if differing:
        raise DataError(str(root), f"expected the same files on all nodes: {few(differing, _SHOWN_FILES, '; ')}")


def _start(hashes: FileHashes | None) -> str:
    return "none" if hashes is None else hashes.sha256[:16]


def _hashed(
    files: Mapping[str, Path], cache: Path | None, group: Peers, with_md5: Collection[str]
) -> tuple[dict[str, FileHashes], list[str]]:
    """The hashes by name, once all ranks are done, and sentences on files that cannot be read."""
    wanted = [path for name, path in files.items() if name in with_md5]
    hashing = Hashing([*files.values()], HashCache(cache), wanted)
    try:
        told = time.monotonic()
        while not group.all_true(hashing.is_done()):
            pulse.step()
            time.sleep(_POLL_SECONDS)
            if group.placement.rank == 0 and time.monotonic() - told > _SHOWN_SECONDS:
                told = time.monotonic()
                gigabytes = f"{hashing.read_bytes / 1e9:.1f} of {hashing.total_bytes / 1e9:.1f} GB"
                sys.stderr.write(f"sha256 of the data files: rank 0 has read {gigabytes}\n")
        digests, problems = hashing.result()
    finally:
        hashing.stop()
    return {name: digests[path] for name, path in files.items() if path in digests}, problems


def _is_same(group: Peers, facts: list[Any]) -> bool:
    """Whether every rank has these facts of files, and all of these are in file systems that nodes can share."""
    every: list[Any] = group.gathered(facts)
    return all(each == every[0] for each in every) and bool(facts[1])


def _facts(path: Path) -> tuple[int, int, int]:
    """Size, time of the last change and inode."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _is_remote(path: Path) -> bool:
    """Whether the file lies in a file system that several machines can share."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    kinds = [line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2:3] == [wanted]]
    return bool(kinds) and kinds[-1] not in LOCAL_FILE_SYSTEMS
