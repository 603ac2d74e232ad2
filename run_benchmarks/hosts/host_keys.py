"""Host keys: an unknown one is refused, `run.py trust` records it, in OpenSSH's known_hosts format."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from run_benchmarks.errors import ConnectError, HostKeyError
from run_benchmarks.hosts.dialling import dial

SCAN_SECONDS = 10.0
HASHED = "|1|"
PATTERNS, REVOKED = "patterns", "@revoked"
WILD = frozenset("*?!")


def fingerprint(key: paramiko.PKey) -> str:
    """The key's type and SHA256 fingerprint, written as `ssh-keygen -l` does."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"


class RefuseUnknownKey(paramiko.MissingHostKeyPolicy):
    """Refuses a host whose key is not recorded, saying what it showed and how to trust it."""

    def __init__(self, host: str, known_hosts: Path) -> None:
        self._host, self._known_hosts = host, known_hosts

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Raise HostKeyError; `hostname` is `[name]:port` for another port than 22."""
        if key in revoked(self._known_hosts, hostname):
            raise HostKeyError(
                self._host,
                f"host key {fingerprint(key)} is marked {REVOKED} in {self._known_hosts}: somebody else may have it. "
                f"Give the host a new one (ssh-keygen -A there) and record that with `run.py trust`",
            )
        raise HostKeyError(
            self._host,
            f"unknown host key {fingerprint(key)}: {self._known_hosts} has none for {hostname}. Compare it with the "
            f"host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there) and record it with `run.py trust`",
        )


def load(known_hosts: Path, host: str, port: int) -> paramiko.HostKeys:
    """The file's keys for a host, none where there is no file; as OpenSSH does, lines that are no entries are skipped.

    Names may hold `*`, `?` and `!`. A key that a line marks as revoked is none; certificates are not supported.

    Only that host's entries are parsed: each that paramiko holds costs it a pass over all others, and with the keys of
    64 hosts in the file that was most of what a log-in took.
    """
    keys, name = paramiko.HostKeys(), known_name(host, port)
    index, gone = _read(known_hosts), revoked(known_hosts, name)
    others = index.get(HASHED, []) + index.get(PATTERNS, [])
    fitting = [[name, *words[1:]] for words in others if _fits(name, words[0])]
    for entry in _entries(index.get(name, []) + fitting):
        if entry.key not in gone:
            for written in entry.hostnames:
                keys.add(written, entry.key.get_name(), entry.key)
    return keys


def revoked(known_hosts: Path, name: str) -> list[paramiko.PKey]:
    """The keys that the file marks as revoked for a host, whose name is as `known_name` has it."""
    lines = _read(known_hosts).get(REVOKED, [])
    return [entry.key for entry in _entries(lines) if any(_fits(name, written) for written in entry.hostnames)]


def _entries(lines: Iterable[list[str]]) -> Iterator[HostKeyEntry]:
    for words in lines:
        with contextlib.suppress(InvalidHostKey, paramiko.SSHException):
            entry = HostKeyEntry.from_line(" ".join(words))
            if entry is not None:
                yield entry


def _fits(name: str, names: str) -> bool:
    """Whether a line's names, parted by commas, with wildcards and negations or hashed, are meant for a host."""
    fits = False
    for pattern in names.split(","):
        plain = re.escape(pattern.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
        if _is_hash(pattern, name) or re.fullmatch(plain, name, re.IGNORECASE):
            if pattern.startswith("!"):
                return False
            fits = True
    return fits


def _is_hash(pattern: str, name: str) -> bool:
    try:
        return pattern.startswith(HASHED) and paramiko.HostKeys.hash_host(name, pattern) == pattern
    except (AssertionError, IndexError, ValueError):  # what paramiko makes of one that is spoilt
        return False


def _read(known_hosts: Path) -> dict[str, list[list[str]]]:
    try:
        state = known_hosts.stat()
    except FileNotFoundError:
        return {}
    return _index(known_hosts, (state.st_ino, state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=2)
def _index(known_hosts: Path, _state: tuple[int, int, int]) -> dict[str, list[list[str]]]:
    """The words of the file's lines by the names that they begin with.

    Hashed names are under HASHED, those with wildcards under PATTERNS, and lines with a marker under that, without it.

    `_state` is the file's inode, time of change and size: another one is another file.
    """
    index: dict[str, list[list[str]]] = defaultdict(list)
    for line in known_hosts.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) < 3 or line.startswith("#"):
            continue
        if words[0].startswith("@") or WILD.intersection(words[0]):
            marked = words[0].startswith("@")
            index[words[0] if marked else PATTERNS].append(words[1:] if marked else words)
            continue
        for name in dict.fromkeys(HASHED if name.startswith(HASHED) else name for name in words[0].split(",")):
            index[name].append(words)
    return dict(index)


def known_name(host: str, port: int) -> str:
    """The host's name in a known_hosts file."""
    return host if port == 22 else f"[{host}]:{port}"


def scan(host: str, port: int) -> paramiko.PKey:
    """Ask a host for its key, without logging in. Raises ConnectError."""
    transport = None
    try:
        transport = paramiko.Transport(dial(host, port, seconds=SCAN_SECONDS))
        transport.start_client(timeout=SCAN_SECONDS)
        return transport.get_remote_server_key()
    except (OSError, EOFError, paramiko.SSHException) as error:
        why = error or "it closed the connection"
        raise ConnectError(host, f"no SSH server shows its key on port {port}: {why}") from error
    finally:
        if transport is not None:
            transport.close()


def recorded(known_hosts: Path, host: str, port: int) -> list[paramiko.PKey]:
    """The keys recorded for a host, hashed names included."""
    entries = load(known_hosts, host, port).lookup(known_name(host, port))
    return list(entries.values()) if entries else []


def record(known_hosts: Path, host: str, port: int, key: paramiko.PKey) -> None:
    """Append a key to the file (mode 0600, made if missing), leaving the other lines as they are; atomic."""
    known_hosts = known_hosts.resolve()  # a link to the file stays one
    known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    existing = known_hosts.read_text(encoding="utf-8", errors="surrogateescape") if known_hosts.exists() else ""
    if existing and not existing.endswith("\n"):
        existing += "\n"
    line = f"{known_name(host, port)} {key.get_name()} {key.get_base64()}\n"
    handle, name = tempfile.mkstemp(dir=known_hosts.parent, prefix=known_hosts.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(existing + line)
        Path(name).replace(known_hosts)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
