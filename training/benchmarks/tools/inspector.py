"""Reads the files of NCCL Inspector: a JSON object per line, one for each collective of a rank.

Source: the profiler plugin's README in NCCL (ext-profiler/inspector): `header` (communicator, rank), `metadata`
(hostname), `coll_perf` (coll, coll_sn, coll_msg_size_bytes, coll_exec_time_us). Newer files tell header and metadata
once, in a line before those of the collectives.
"""

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from vendors.programs import MAX_NAME, MAX_PARTS, Answer, UnreadableError

SUFFIXES = (".log", ".json", ".jsonl")
MAX_FILES, MAX_BYTES = 256, 16 << 20
"""Files that are read on a host, and bytes of each, from its end: the last collectives count."""


def read(folder: Path, host: str, max_age_s: float | None = None) -> Answer:
    """For each collective and size the shortest of the ranks' median times in us, of the ranks on `host`.

    Of files named after hosts only its own are opened, and those alone that changed within the last `max_age_s`.

    A collective lasts on each rank until the last rank has come: the rank with the shortest time is the late one.

    Raises:
        UnreadableError: no file holds a collective of this host.
    """
    times: dict[str, dict[object, list[float]]] = defaultdict(lambda: defaultdict(list))
    files = _files(folder, host, max_age_s)
    for path in files:
        for name, rank, microseconds in _collectives(path, host):
            if name in times or len(times) < MAX_PARTS:
                times[name][rank].append(microseconds)
    if not times:
        raise UnreadableError(f"no collective of {host} in the {len(files)} files of {folder}")
    return Answer(figures={name: min(map(median, of_ranks.values())) for name, of_ranks in times.items()})


def _files(folder: Path, host: str, max_age_s: float | None) -> list[Path]:
    """The files of a host, the last MAX_FILES by time; NCCL names them HOST-pidN.log."""
    found: dict[Path, float] = {}
    for path in folder.rglob("*"):
        if path.suffix in SUFFIXES and path.is_file():
            with suppress(OSError):  # one that goes away meanwhile
                found[path] = path.stat().st_mtime
    since = -math.inf if max_age_s is None else time.time() - max_age_s
    recent = [path for path in found if found[path] >= since]
    short = host.partition(".")[0]
    own = [path for path in recent if path.name.partition("-pid")[0].partition(".")[0] == short]
    return sorted(own or recent, key=lambda path: (found[path], path))[-MAX_FILES:]


def _collectives(path: Path, host: str) -> Iterator[tuple[str, object, float]]:
    """Name and size, rank, and us of each collective of a file."""
    rank: object = path.name
    is_ours = True
    for line in _tail(path).splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        header, metadata, perf = (_dict(found, key) for key in ("header", "metadata", "coll_perf"))
        rank = header.get("rank", rank)
        if isinstance(name := metadata.get("hostname"), str):
            is_ours = name.partition(".")[0] == host.partition(".")[0]
        size, microseconds = perf.get("coll_msg_size_bytes"), perf.get("coll_exec_time_us")
        if is_ours and isinstance(size, int) and isinstance(microseconds, int | float) and 0 < microseconds < 1e12:
            yield f"{perf.get('coll')} {size} bytes"[:MAX_NAME], str(rank)[:MAX_NAME], float(microseconds)


def _dict(found: object, key: str) -> dict[str, Any]:
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, dict) else {}


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - MAX_BYTES))
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
