"""Keeps between runs what saves the head node time: a folder, and in it the hashes of files seen before."""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from common.reading import sha256_of
from common.whole_files import write_text


def cache_folder() -> Path:
    """The folder on this machine: below $XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clusterdyno"


def hashes_of(paths: Iterable[Path]) -> dict[Path, str]:
    """sha256 of each file, in hex. A file is read once per path, size and modification time, which a cache keeps.

    A cache that cannot be read or written only costs time.

    Raises:
        OSError: a file cannot be read.
    """
    cache = cache_folder() / "file-hashes.json"
    known = _read_cache(cache)
    fresh: dict[str, str] = {}
    hashes = {}
    for path in paths:
        status = path.stat()
        key = f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
        if key not in known:
            fresh[key] = sha256_of(path)
        hashes[path] = known.get(key) or fresh[key]
    if fresh:
        _write_cache(cache, known | fresh)
    return hashes


def _read_cache(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_cache(path: Path, known: Mapping[str, str]) -> None:
    there = {key: value for key, value in known.items() if Path(key.split("\n", 1)[0]).is_file()}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(there))
