"""Folders to and from a host, as one tar stream over one channel, verified by size and sha256."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from run_benchmarks.errors import CollectError
from run_benchmarks.hosts.base import Host

SPOOL_BYTES = 16 << 20
# Unpack beside the destination and rename: whoever sees the folder sees it whole. The loser of a race yields.
PUSH = """
set -eu
umask 022
mkdir -p "$(dirname "$1")"
tmp=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
tar -xf - -C "$tmp"
chmod 0755 "$tmp"
[ -e "$1" ] || mv -T "$tmp" "$1" 2>/dev/null || [ -d "$1" ]
"""
PULL = """
set -eu
cd "$1"
find . -type f ! -name "*.lock" -exec sha256sum -b {} + >&2
tar --exclude="*.lock" -cf - .
"""
MANIFEST_LINE = re.compile(r"^([0-9a-f]{64}) [ *]\./(.+)$")


def push(host: Host, archive: IO[bytes], destination: str, *, deadline: float) -> None:
    """Unpack a tar stream as the folder `destination` of the host; an existing folder is left as it is."""
    host.run(["sh", "-c", PUSH, "sh", destination], stdin=archive, deadline=deadline)


def pull(host: Host, source: str, destination: Path, *, deadline: float) -> dict[str, str]:
    """Bring every file below `source`, lock files aside, into `destination` (made, mode 0750) and check it.

    Returns:
        sha256 by relative path, as computed on the host and found equal here.

    Raises:
        CollectError: files are missing or differ (they are named; the sound ones stay), or the archive holds a member
            that would leave the folder (nothing of the archive is kept).
    """
    destination.mkdir(mode=0o750, parents=True, exist_ok=True)
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as spool:
        completed = host.run(
            ["sh", "-c", PULL, "sh", source], on_stdout=lambda chunk: _write(spool, chunk), deadline=deadline
        )
        spool.seek(0)
        _extract(host.name, spool, destination)
    matches = filter(None, map(MANIFEST_LINE.match, completed.stderr.splitlines()))
    expected = {match[2]: match[1] for match in matches}
    wrong = sorted(name for name, digest in expected.items() if _sha256(destination / name) != digest)
    if wrong:
        raise CollectError(host.name, f"these files of {source} arrived incomplete or not at all: {', '.join(wrong)}")
    return expected


def _write(spool: IO[bytes], chunk: bytes) -> None:
    spool.write(chunk)


def _extract(host: str, archive: IO[bytes], destination: Path) -> None:
    """Unpack beside the destination first, so that a refused member leaves nothing behind."""
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".incoming-") as staging:
        try:
            with tarfile.open(fileobj=archive, mode="r|") as tar:
                tar.extractall(staging, filter="data")
        except (tarfile.TarError, OSError) as error:
            raise CollectError(host, f"its archive was refused: {error}") from error
        for item in Path(staging).iterdir():
            target = destination / item.name
            if item.is_dir() and target.is_dir():
                shutil.copytree(item, target, dirs_exist_ok=True)
            else:
                with contextlib.suppress(FileNotFoundError):
                    target.unlink()
                item.rename(target)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
