"""Writes seal.json at the end of a run: the sha256 of all its files that no round.json covers.

The chain: seal.json names run.json, every round.json and code.manifest by hash; a round.json names the files collected
from its hosts; code.manifest names the code, and its own hash is the code's digest.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from common.reading import read_bounded, sha256_of
from run_benchmarks.results.records import MAX_RECORD_BYTES, RECORD_FILE, write_record

SEAL_FILE, MANIFEST_FILE = "seal.json", "code.manifest"
SCHEMA_VERSION = 1
# The logs grow after the seal; the lock is empty.
SIGNATURE_FILE = "seal.json.sig"
UNSEALED = frozenset({SEAL_FILE, SIGNATURE_FILE, "run.log", "console.log", "run.lock"})
ROUND_FILE = RECORD_FILE


class Seal(BaseModel, extra="forbid"):
    """`files`: sha256 by path relative to the run's folder."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    sealed_ms: int
    code_digest: str
    files: dict[str, str]


def write_seal(folder: Path, run_id: str, code_digest: str) -> str:
    """Seal a run's folder; returns the sha256 of seal.json.

    Raises:
        OSError: a file cannot be read or written.
    """
    vouched = set(vouched_files(folder))
    sealed = (name for name in all_files(folder) if (folder / name).is_file() and name not in vouched)
    files = {name: sha256_of(folder / name) for name in sealed}
    seal = Seal(run_id=run_id, sealed_ms=time.time_ns() // 1_000_000, code_digest=code_digest, files=files)
    write_record(folder / SEAL_FILE, seal)
    return sha256_of(folder / SEAL_FILE)


def unseal(folder: Path) -> None:
    """Remove a run's seal and its signature, before what they vouch for changes."""
    for name in (SEAL_FILE, SIGNATURE_FILE):
        (folder / name).unlink(missing_ok=True)


def all_files(folder: Path) -> Iterator[str]:
    """Every file and link below the folder, sorted, but UNSEALED ones and those with names that are not UTF-8."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in UNSEALED and _is_text(name) and (path.is_symlink() or not path.is_dir()):
            yield name


def unlisted_files(folder: Path) -> Iterator[str]:
    """The files below the folder that no seal lists because their names are not UTF-8, in a form that is."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not _is_text(name) and (path.is_symlink() or not path.is_dir()):
            yield name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _is_text(name: str) -> bool:
    return os.fsencode(name) == name.encode(errors="replace")


def vouched_files(folder: Path) -> Iterator[str]:
    """The files whose hashes are in a round.json; none of one that cannot be read."""
    for path in folder.glob(f"*/round*/{ROUND_FILE}"):
        try:
            nodes = json.loads(read_bounded(path, MAX_RECORD_BYTES))["nodes"]
            names = [
                f"{node_folder(node['host'], node['node_rank'])}/{name}" for node in nodes for name in node["files"]
            ]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        yield from (f"{path.parent.relative_to(folder).as_posix()}/{name}" for name in names)


def node_folder(host: str, node_rank: int) -> str:
    """A node's folder in the folder of its round."""
    return f"{host}_noderank{node_rank}"


def config_digest(config: Mapping[str, object]) -> str:
    """sha256 of a case's settings in the form of run.json."""
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
