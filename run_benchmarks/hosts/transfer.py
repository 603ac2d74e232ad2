"""Folders to and from a host, as one tar stream over one channel, verified by size and sha256."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from run_benchmarks.errors import CollectError, DeadlineError, HostError, LinkLostError, tail
from run_benchmarks.hosts.base import Host

SPOOL_BYTES = 16 << 20
FILE_MODE = 0o750
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
cd "$1" || exit
find . -type f ! -name "*.lock" -exec sha256sum -b {} + >&2
summed=$?
tar --exclude="*.lock" -cf - . && exit "$summed"
"""
# sha256sum writes a leading backslash where it escapes line ends and backslashes in the name.
MANIFEST_LINE = re.compile(r"^(\\?)([0-9a-f]{64}) [ *]\./(.+)$")
ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


def push(host: Host, archive: IO[bytes], destination: str, *, deadline: float) -> None:
    """Unpack a tar stream as the folder `destination` of the host; an existing folder is left as it is."""
    host.run(["sh", "-c", PUSH, "sh", destination], stdin=archive, deadline=deadline)


def pull(host: Host, source: str, destination: Path, *, deadline: float) -> dict[str, str]:
    """Bring every file below `source`, lock files aside, into `destination` (made, mode 0750) and check it.

    Returns:
        sha256 by relative path, as computed on the host and found equal here.

    Raises:
        CollectError: files are missing or differ (they are named; the sound ones stay), be it that the transfer broke
            off, or the archive holds a member that would leave the folder (nothing of it is kept then).
    """
    destination.mkdir(mode=0o750, parents=True, exist_ok=True)
    broken: HostError | None = None
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as spool:
        try:
            completed = host.run(
                ["sh", "-c", PULL, "sh", source],
                on_stdout=lambda chunk: _write(host.name, spool, chunk),
                deadline=deadline,
                check=False,
            )
            listing, exit_code = completed.stderr, completed.exit_code
        except (DeadlineError, LinkLostError) as error:
            broken, listing, exit_code = error, error.output, 1
        expected, complaints = _manifest(listing)
        if spool.tell():
            spool.seek(0)
            _extract(host.name, spool, destination, torn=expected if broken else None)
    sound = {name: digest for name, digest in expected.items() if _sha256(destination / name) == digest}
    wrong = sorted(expected.keys() - sound.keys())
    if wrong:
        complaints.insert(0, f"these files arrived incomplete or not at all: {', '.join(wrong)}")
    if broken is not None:
        complaints.insert(0, f"the transfer broke: {broken}")
    if wrong or exit_code != 0:
        reason = tail("\n".join(complaints)) or f"exit code {exit_code}"
        raise CollectError(host.name, f"{source}: {reason}", files=sound, missing=wrong) from broken
    return expected


def _manifest(text: str) -> tuple[dict[str, str], list[str]]:
    """sha256 by relative path as sha256sum wrote them, and the lines that are something else."""
    digests: dict[str, str] = {}
    others: list[str] = []
    for line in filter(None, text.split("\n")):
        match = MANIFEST_LINE.match(line)
        if match is None:
            others.append(line)
            continue
        name = re.sub(r"\\[\\nr]", lambda escape: ESCAPES[escape[0]], match[3]) if match[1] else match[3]
        digests[name] = match[2]
    return digests, others


def _write(host: str, spool: IO[bytes], chunk: bytes) -> None:
    try:
        spool.write(chunk)
    except OSError as error:
        raise CollectError(host, f"its files cannot be kept on the head node: {error}") from error


def _extract(host: str, archive: IO[bytes], destination: Path, *, torn: Mapping[str, str] | None) -> None:
    """Unpack beside the destination first, so that a refused member leaves nothing behind.

    Of an archive that was cut off, those files are kept whose sha256 is that in `torn`.
    """
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".incoming-") as staging:
        try:
            with tarfile.open(fileobj=archive, mode="r|") as tar:
                tar.extractall(staging, filter=_for_us)
        except (tarfile.TarError, OSError) as error:
            if torn is None or isinstance(error, tarfile.FilterError):
                raise CollectError(host, f"its archive was refused: {error}") from error
        if torn is not None:
            for path in [path for path in Path(staging).rglob("*") if path.is_file()]:
                if _sha256(path) != torn.get(path.relative_to(staging).as_posix()):
                    path.unlink()
        for item in Path(staging).iterdir():
            target = destination / item.name
            if item.is_dir() and target.is_dir():
                shutil.copytree(item, target, dirs_exist_ok=True)
            else:
                with contextlib.suppress(FileNotFoundError):
                    target.unlink()
                item.rename(target)


def _for_us(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """Of a member that may be unpacked, a form that others than its owner and the group cannot read."""
    safe = tarfile.data_filter(member, folder)
    return safe if safe.mode is None else safe.replace(mode=safe.mode & FILE_MODE, deep=False)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
