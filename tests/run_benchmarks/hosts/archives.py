"""Archives for tests, honest and hostile, and their way through the reader into a folder."""

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

from run_benchmarks.hosts.incoming.limits import CollectLimits, EnoughError
from run_benchmarks.hosts.incoming.reception import Staging
from run_benchmarks.hosts.incoming.tar_stream import ArchiveError, TarStream

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", content: bytes = b"") -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    return info, content


def archive(entries: Iterable[Entry], form: int = tarfile.GNU_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def header(name: str, kind: bytes, size: int) -> bytes:
    """One block, of whatever size it claims."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def unpack(
    data: bytes, destination: Path, *, limits: CollectLimits | None = None, step: int = 1 << 16
) -> tuple[Staging, Exception | None]:
    """Read the archive in pieces of `step` bytes and move all that came into `destination`; what ended it early."""
    destination.mkdir(exist_ok=True)
    staging = Staging(destination.parent, limits or CollectLimits())
    stream = TarStream(staging)
    trouble: Exception | None = None
    try:
        for at in range(0, len(data), step):
            stream.feed(data[at : at + step])
    except (ArchiveError, EnoughError) as error:
        trouble = error
    else:
        trouble = None if stream.at_rest else ArchiveError("torn")
    finally:
        staging.move(staging.digests, destination)
        staging.close()
    return staging, trouble


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: mode, links and contents (or target) by name."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        facts = path.lstat()
        content = b""
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_nlink if path.is_file() else 0, content)
    return found
