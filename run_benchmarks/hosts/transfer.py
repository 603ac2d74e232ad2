"""Transfers folders to and from a host as one tar stream over one channel, verified by size and sha256.

Where the head node sees a host's folder on a shared file system, the host lists its files, and the stream is made here.
"""

import contextlib
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from common.reading import read_bounded
from common.shortening import few
from run_benchmarks.errors import CollectError, HostError, tail
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.endpoint import is_local
from run_benchmarks.hosts.incoming.capture import LEFT_OUT
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.incoming.names import as_listed, shown
from run_benchmarks.hosts.incoming.reception import Reception
from run_benchmarks.hosts.incoming.tar_stream import ArchiveError
from run_benchmarks.hosts.local import LocalHost

NAMES_SHOWN = 20  # of files, in one message
# Unpack beside the destination and rename: a visible folder is complete. The loser of a race gives up.
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
# Small files go first, so that a large one which a limit cuts is the last. GNU tar would send a hard link as a link and
# take a backslash in a name for an escape; busybox knows no such options. A file of more than $2 KiB is listed with a
# sum that none has: it is cut in any case, and to read a terabyte of holes takes longer than the collection may.
LIST = """
cd "$1" || exit
find . -type f ! -name "*.lock" -size "-$(($2 + 1))k" -exec sha256sum -b {} + >&2
code=$?
find . -type f ! -name "*.lock" -size "+$2k" -exec printf "%064d *%s\\n" 0 {} \\; >&2
"""
SEND = """
cd "$1" || exit
gnu="--hard-dereference --no-unquote"
tar $gnu --version >/dev/null 2>&1 || gnu=
for size in "-size -2049" "-size +2048 -size -131073" "-size +131072"; do
  find . ! -type d ! -name "*.lock" $size -exec tar $gnu -cf - {} + || code=$?
done
exit "$code"
"""
PULL = LIST + SEND
# Whoever finds the word in the file has the host's folder before him; lock files are not collected.
SEEN, SEEN_SECONDS = "seen-here.lock", 30.0
LEAVE_WORD = f'cd "$1" && rm -f {SEEN} && printf %s "$2" >{SEEN}'
# sha256sum writes a leading backslash where it escapes line ends and backslashes in the name.
MANIFEST_LINE = re.compile(r"^(\\?)([0-9a-f]{64}) [ *]\./(.+)$")
ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """The received files of a folder.

    Attributes:
        files: sha256 by relative path, as computed on the host and found equal here; for a file that a limit cut, of
            the
        part that is kept.
        incomplete: a file was cut or left out, and is complete on its host only.
        cut: names of the files of which a limit left the beginning only, or nothing.
    """

    files: dict[str, str]
    incomplete: bool
    cut: frozenset[str] = frozenset()


def push(
    host: Host, archive: IO[bytes], destination: str, *, deadline: float, cancel: threading.Event | None = None
) -> None:
    """Unpack a tar stream as the host's folder `destination`, unless it exists, within `deadline` seconds.

    Raises:
        HostError: it did not get there; also where `cancel` was set meanwhile.
    """
    host.run(["sh", "-c", PUSH, "sh", destination], stdin=archive, deadline=deadline, cancel=cancel)
    if cancel is not None and cancel.is_set():
        raise HostError(host.name, f"the copy to {destination} was given up")


def fetch(
    host: Host,
    source: str,
    destination: Path,
    *,
    deadline: float,
    limits: CollectLimits | None = None,
    reserved: Collection[str] = (),
    warn: Callable[[str], None] = lambda _: None,
) -> Pulled:
    """As `pull`; a folder that is seen here is read here, and comes from the host only if its files differ here.

    `deadline`, in seconds, is that of `pull`.

    Raises:
        CollectError: see `pull`.
    """
    limits = limits or CollectLimits()
    with contextlib.suppress(HostError):  # a shared file system may show an old state of a file for a time
        if sees(host, source):
            listing = host.run(_argv(f'{LIST}exit "$code"', source, limits), deadline=deadline).stderr
            here = _Sender(LocalHost(host.name), _argv(f"code=0\n{SEND}", source, limits), listing)
            return _receive(here, source, destination, deadline, limits, reserved, warn)
    return pull(host, source, destination, deadline=deadline, limits=limits, reserved=reserved, warn=warn)


def pull(
    host: Host,
    source: str,
    destination: Path,
    *,
    deadline: float,
    limits: CollectLimits | None = None,
    reserved: Collection[str] = (),
    warn: Callable[[str], None] = lambda _: None,
) -> Pulled:
    """Bring every file below `source`, except lock files, into `destination` (made, mode 0750) and verify it.

    The stream is unpacked as it arrives, beside the destination; it replaces what is in the place of a file or of its
    folders. Links, devices and the like are left out, and the names `reserved` for files of the head node; `warn`
    receives each of them, and what a limit cut. `deadline`: seconds without progress, see Reception.receive.

    Raises:
        CollectError: files are missing or differ (the message names them; the valid ones stay); the transfer broke off,
            the data is no archive, or the files cannot be kept here.
    """
    limits = limits or CollectLimits()
    sender = _Sender(host, _argv(PULL, source, limits))
    return _receive(sender, source, destination, deadline, limits, reserved, warn)


@dataclass(frozen=True)
class _Sender:
    """Who sends an archive, by which command, and what the files' host has already listed."""

    host: Host
    argv: list[str]
    listing: str = ""


def _argv(script: str, source: str, limits: CollectLimits) -> list[str]:
    return ["sh", "-c", script, "sh", source, str(-(-limits.max_bytes // 1024))]


def _receive(
    sender: _Sender,
    source: str,
    destination: Path,
    deadline: float,
    limits: CollectLimits,
    reserved: Collection[str],
    warn: Callable[[str], None],
) -> Pulled:
    destination.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        with Reception(destination, limits, reserved) as reception:
            said, exit_code, broken = reception.receive(sender.host, sender.argv, deadline)
            return _settle(sender.host.name, source, reception, sender.listing + said, exit_code, broken, warn)
    except OSError as error:
        raise CollectError(sender.host.name, f"its files cannot be kept on the head node: {error}") from error


def sees(host: Host, folder: str) -> bool:
    """Whether this machine has another host's folder before it, on a file system that both share.

    A name that is here, too, proves nothing: the host leaves a word there, and it is read here.

    Raises:
        HostError: the host could not leave it.
    """
    try:
        if is_local(host.name) or not Path(folder).is_dir():
            return False
        word = secrets.token_hex()
        host.run(["sh", "-c", LEAVE_WORD, "sh", folder, word], deadline=SEEN_SECONDS)
        return read_bounded(Path(folder) / SEEN, len(word)) == word.encode()
    except OSError:  # a folder that this user may not enter, for one
        return False


def _settle(
    host: str,
    source: str,
    reception: Reception,
    listing: str,
    exit_code: int,
    broken: HostError | None,
    warn: Callable[[str], None],
) -> Pulled:
    """Compare the received files with the host's list, keep the valid ones, report the rest."""
    expected, complaints = _manifest(listing)
    files = _compare(expected, reception)
    torn = broken is not None or reception.refused is not None
    reception.keep(files.verified if torn else reception.digests)
    if LEFT_OUT.search(listing):
        complaints.insert(0, "its list of files is longer than what is taken of one")
        exit_code = exit_code or 1
    _tell_left_out(host, reception.left_out, complaints, warn)
    _tell_cut(host, reception, files, warn)
    if files.unlisted and not torn:
        warn(f"{host}: came without a checksum of the host: {_names(files.unlisted)}")
    if files.wrong or torn or exit_code != 0:
        reason = tail("\n".join([*_failures(broken, reception.refused, files.wrong), *complaints]))
        raise CollectError(
            host,
            f"{source}: {reason or f'exit code {exit_code}'}",
            files=files.verified,
            missing=files.wrong + files.beyond,
            cut=reception.cut,
        ) from broken
    return Pulled(
        files=files.verified,
        incomplete=bool(reception.cut or files.beyond or expected.keys() & _listed_left_out(reception)),
        cut=frozenset(reception.cut).union(files.beyond),
    )


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """The received files beside the host's list.

    `verified`: sha256 by name of those that are as listed, or of the part that is kept of a cut one; `wrong`: listed
    ones that are missing or differ; `beyond`: listed ones that a limit did not let come; `unlisted`: in no list.
    """

    verified: dict[str, str]
    wrong: list[str]
    beyond: list[str]
    unlisted: list[str]


def _compare(expected: Mapping[str, str], reception: Reception) -> _Compared:
    came, cut = reception.digests, reception.cut
    sound = {name: digest for name, digest in expected.items() if name not in cut and came.get(name) == digest}
    not_sound = expected.keys() - sound.keys() - cut - _listed_left_out(reception)
    beyond = sorted(not_sound - came.keys()) if reception.enough else []
    return _Compared(
        verified=sound | {name: came[name] for name in cut},
        wrong=sorted(not_sound - set(beyond)),
        beyond=beyond,
        unlisted=sorted(came.keys() - expected.keys() - cut),
    )


def _listed_left_out(reception: Reception) -> set[str]:
    """The names of the files that were not taken, as the host's list has them."""
    return {as_listed(name) for name in reception.left_out}


def _failures(broken: HostError | None, refused: ArchiveError | None, wrong: list[str]) -> Iterator[str]:
    if broken is not None:
        yield f"the transfer broke: {broken}"
    if refused is not None:
        yield f"its archive was refused: {refused}"
    if wrong:
        yield f"these files arrived incomplete or not at all: {_names(wrong)}"


def _tell_cut(host: str, reception: Reception, files: _Compared, warn: Callable[[str], None]) -> None:
    """Report what a limit cut or did not let come."""
    if reception.enough:
        of = f"; of {shown(min(reception.cut))} the beginning is kept" if reception.cut else ""
        rest = f"; not brought: {_names(files.beyond)}" if files.beyond else ""
        warn(f"{host}: {reception.enough}{of}{rest}")


def _tell_left_out(
    host: str, left_out: Mapping[str, str], complaints: Sequence[str], warn: Callable[[str], None]
) -> None:
    """Report members that were not taken, and those that tar skipped without an error (a socket)."""
    said = [f"{shown(name)} is left out: {why}" for name, why in left_out.items()]
    said += [shown(line) for line in complaints if line.startswith("tar: ")]
    for line in said[:NAMES_SHOWN]:
        warn(f"{host}: {line}")
    if len(said) > NAMES_SHOWN:
        warn(f"{host}: {len(said) - NAMES_SHOWN} more are left out")


def _names(names: list[str]) -> str:
    return few([*map(shown, names)], NAMES_SHOWN)


def _manifest(text: str) -> tuple[dict[str, str], list[str]]:
    """sha256 by relative path as sha256sum wrote them, and all other lines."""
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
