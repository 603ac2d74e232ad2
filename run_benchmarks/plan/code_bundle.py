"""Packs the code for the hosts into one deterministic archive named by the hash of its content."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple

PARTS = ("common", "protocol", "workloads", "training", "monitors", "vendors")
# No .env: the variables of a case reach its task through the plan, and may be secrets.
SUFFIXES = frozenset({".py", ".txt", ".json", ".csv", ".model", ".js", ".css"})
CASE_CONFIGS = ("vendors", "config")  # vendors/<vendor>/<benchmark>/config/
BASE_CONFIG, CONFIG_CLASS = "base.py", "config.py"
HASH_LENGTH = 16
EMPTY_FOLDER = "folder"


@dataclass(frozen=True)
class CodeBundle:
    """A snapshot of the host-side packages; `digest` names the folder that it is unpacked to.

    `manifest` has a line for each file in the form of `sha256sum -b`, and one for each empty folder, sorted by bytes:
    what code_folder.LISTING prints for an unpacked folder. `digest` is the beginning of its sha256.
    """

    digest: str
    archive: bytes
    manifest: str

    @property
    def names(self) -> list[str]:
        """Its files, relative to the repository."""
        lines = (line.partition(" *./") for line in self.manifest.splitlines())
        return [name for kind, _, name in lines if kind != EMPTY_FOLDER]

    def open(self) -> io.BytesIO:
        """The archive as a fresh stream."""
        return io.BytesIO(self.archive)


def bundle(root: Path, mount_points: tuple[str, ...] = ()) -> CodeBundle:
    """Pack the host-side packages below `root`, once for many plans of the same files.

    `mount_points` are relative folders that must exist, empty, in the unpacked tree: the code is mounted read-only, and
    Docker cannot make a mount point inside a read-only mount.
    """
    return _packed(root, mount_points, tuple(_files(root)))


class _File(NamedTuple):
    """A file of the code: its name relative to the repository, and what a write of it changes."""

    name: str
    inode: int
    size: int
    changed_ns: int


@lru_cache(maxsize=2)
def _packed(root: Path, mount_points: tuple[str, ...], files: tuple[_File, ...]) -> CodeBundle:
    buffer = io.BytesIO()
    listing = [f"{EMPTY_FOLDER} *./{name}" for name in mount_points if not _has_inner(name, mount_points)]
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for mount_point in sorted(mount_points):
            entry = tarfile.TarInfo(mount_point)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for file in files:
            data = (root / file.name).read_bytes()
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
            listing.append(f"{hashlib.sha256(data).hexdigest()} *./{entry.name}")
    manifest = "".join(f"{line}\n" for line in sorted(listing, key=str.encode))
    return CodeBundle(manifest_digest(manifest), buffer.getvalue(), manifest)


def manifest_digest(manifest: str) -> str:
    """The name of the code that a manifest lists."""
    return hashlib.sha256(manifest.encode()).hexdigest()[:HASH_LENGTH]


def _has_inner(name: str, mount_points: tuple[str, ...]) -> bool:
    return any(other.startswith(f"{name}/") for other in mount_points)


def _is_case_config(parts: list[str], beside: list[str]) -> bool:
    """Whether it is a case config, or the base.py that a benchmark's begin with; `beside`: the files of its folder."""
    is_base = parts[-1] == BASE_CONFIG and CONFIG_CLASS in beside
    return is_base or (len(parts) >= 5 and (parts[-5], parts[-2]) == CASE_CONFIGS)


def _files(root: Path) -> Iterator[_File]:
    """The files of the code, in the order of the parts of their names."""
    for part in PARTS:
        found: list[list[str]] = []
        for folder, folders, names in os.walk(root / part):
            folders[:] = [name for name in folders if name != "__pycache__"]
            within = Path(folder).relative_to(root).parts
            code = [[*within, name] for name in names if PurePath(name).suffix in SUFFIXES]
            found += [parts for parts in code if not _is_case_config(parts, names)]
        for parts in sorted(found):
            path = root.joinpath(*parts)
            if path.is_file():
                about = path.stat()
                yield _File("/".join(parts), about.st_ino, about.st_size, about.st_ctime_ns)
