"""Packs the code for the hosts into one deterministic archive named by the hash of its content."""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTS = ("common", "protocol", "workloads", "training", "monitors", "vendors")
# No .env: the variables of a case reach its task through the plan, and may be secrets.
SUFFIXES = frozenset({".py", ".txt", ".json", ".csv", ".model", ".js", ".css"})
CASE_CONFIGS = "vendors/*/*/config/*"
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
    """Pack the host-side packages below `root`.

    `mount_points` are relative folders that must exist, empty, in the unpacked tree: the code is mounted read-only, and
    Docker cannot make a mount point inside a read-only mount.
    """
    buffer = io.BytesIO()
    listing = [f"{EMPTY_FOLDER} *./{name}" for name in mount_points if not _has_inner(name, mount_points)]
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
            listing.append(f"{hashlib.sha256(data).hexdigest()} *./{entry.name}")
    manifest = "".join(f"{line}\n" for line in sorted(listing, key=str.encode))
    return CodeBundle(manifest_digest(manifest), buffer.getvalue(), manifest)


def manifest_digest(manifest: str) -> str:
    """The name of the code that a manifest lists."""
    return hashlib.sha256(manifest.encode()).hexdigest()[:HASH_LENGTH]


def _has_inner(name: str, mount_points: tuple[str, ...]) -> bool:
    return any(other.startswith(f"{name}/") for other in mount_points)


def _is_case_config(path: Path) -> bool:
    """Whether it is a case config, or the base.py that those of a benchmark begin with."""
    return path.match(CASE_CONFIGS) or (path.name == BASE_CONFIG and (path.parent / CONFIG_CLASS).is_file())


def _files(root: Path) -> Iterator[Path]:
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            is_code = path.suffix in SUFFIXES and "__pycache__" not in path.parts and not _is_case_config(path)
            if is_code and path.is_file():
                yield path
