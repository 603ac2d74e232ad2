"""The code that the hosts run, as one deterministic archive named by the hash of its content."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTS = ("training", "monitors", "vendors")
# No .env: the variables of a case reach its task through the plan, and may be secrets.
SUFFIXES = frozenset({".py", ".txt", ".json", ".csv", ".model"})
HASH_LENGTH = 16


@dataclass(frozen=True)
class CodeBundle:
    """A snapshot of the host-side packages; `digest` names the folder it is unpacked to."""

    digest: str
    archive: bytes

    def open(self) -> io.BytesIO:
        """The archive as a fresh stream."""
        return io.BytesIO(self.archive)


def bundle(root: Path, mount_points: tuple[str, ...] = ()) -> CodeBundle:
    """Pack the host-side packages below `root`.

    `mount_points` are relative folders that must exist, empty, in the unpacked tree: the code is mounted read-only, and
    Docker cannot make a mount point inside a read-only mount.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for mount_point in sorted(mount_points):
            entry = tarfile.TarInfo(mount_point)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path in _files(root):
            data = path.read_bytes()
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    archive = buffer.getvalue()
    return CodeBundle(hashlib.sha256(archive).hexdigest()[:HASH_LENGTH], archive)


def _files(root: Path) -> Iterator[Path]:
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                yield path
