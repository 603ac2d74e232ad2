"""Checks host keys against known_hosts files: an unknown key is refused until `run.py trust` records it."""

import base64
import contextlib
import functools
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from common.whole_files import write_durably
from run_benchmarks.errors import HostKeyError
from run_benchmarks.hosts import host_certificates
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.host_certificates import SUFFIX

HASHED = "|1|"
PATTERNS, REVOKED, AUTHORITY = "patterns", "@revoked", "@cert-authority"
KINDS = (
    "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "rsa-sha2-512", "rsa-sha2-256",
)  # fmt: skip
WILD = frozenset("*?!")


def fingerprint(key: paramiko.PKey) -> str:
    """The key's type and SHA256 fingerprint, in the form of `ssh-keygen -l`."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"


@dataclass(frozen=True)
class Known:
    """The entries of a host in the files of host keys: its keys, authorities that may certify one, revoked keys."""

    keys: tuple[paramiko.PKey, ...]
    authorities: tuple[paramiko.PKey, ...]
    revoked: tuple[paramiko.PKey, ...]


def load(endpoint: Endpoint) -> Known:
    """The entries of the endpoint's files for it, if any; like OpenSSH it skips other lines.

    Names may hold `*`, `?` and `!`. A revoked key is not accepted. An authority's line may leave the host's port out.

    Only that host's entries are parsed: paramiko compares each entry with all others, which took most of the time of a
    login with the keys of 64 hosts in the file.
    """
    name, bare = endpoint.known_name, endpoint.certified_name
    keys: list[paramiko.PKey] = []
    authorities: list[paramiko.PKey] = []
    gone: list[paramiko.PKey] = []
    for file in endpoint.known_hosts_files:
        index = _read(file)
        others = index.get(HASHED, []) + index.get(PATTERNS, [])
        fitting = [words for words in others if _fits(name, words[0])]
        keys += [entry.key for entry in _entries(index.get(name, []) + fitting)]
        authorities += _marked(index, AUTHORITY, (name, bare))
        gone += _marked(index, REVOKED, (name, bare))
    return Known(tuple(key for key in keys if key not in gone), tuple(authorities), tuple(gone))


def _marked(index: Mapping[str, list[list[str]]], marker: str, names: Iterable[str]) -> list[paramiko.PKey]:
    fitting = [words for words in index.get(marker, []) if any(_fits(name, words[0]) for name in names)]
    return [entry.key for entry in _entries(fitting)]


def algorithms(known: Known) -> tuple[str, ...]:
    """The kinds of host keys to request, in this order: certified ones, recorded ones, the others."""
    recorded = {key.get_name() for key in known.keys}
    plain = sorted(KINDS, key=lambda kind: ("ssh-rsa" if kind.startswith("rsa-sha2-") else kind) not in recorded)
    certified = [kind + SUFFIX for kind in KINDS] if known.authorities else []
    return (*certified, *plain)


def verify(endpoint: Endpoint, known: Known, key: paramiko.PKey) -> None:
    """Check that the key a host presents is recorded for it or certified.

    Raises:
        HostKeyError: it is neither.
    """
    if key in known.keys:
        return
    files = " and ".join(map(str, endpoint.known_hosts_files))
    if key in known.revoked:
        raise HostKeyError(
            endpoint.host,
            f"host key {fingerprint(key)} is marked {REVOKED} in {files}: somebody else may have it. "
            f"Give the host a new one (ssh-keygen -A there) and record that with run.py's command trust",
        )
    certificate = key.public_blob
    if certificate is not None and known.authorities:
        try:
            host_certificates.verify(certificate.key_blob, endpoint.certified_name, known.authorities, known.revoked)
        except host_certificates.CertificateError as error:
            raise HostKeyError(
                endpoint.host, f"its certificate for host key {fingerprint(key)} does not vouch for it: {error}"
            ) from error
        return
    if known.keys:
        expected = next((other for other in known.keys if other.get_name() == key.get_name()), known.keys[0])
        raise HostKeyError(
            endpoint.host,
            f"host key CHANGED: recorded is {fingerprint(expected)}, it shows {fingerprint(key)}; "
            f"somebody may be in between. If the host was reinstalled, remove its line from {files} "
            f"(ssh-keygen -R) and give run.py the command trust",
        )
    uncertified = " and no certificate" if known.authorities else ""
    raise HostKeyError(
        endpoint.host,
        f"unknown host key {fingerprint(key)}{uncertified}: {files} has none for {endpoint.known_name}. Compare it "
        f"with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there) and record it with run.py's command "
        "trust",
    )


def _entries(lines: Iterable[list[str]]) -> Iterator[HostKeyEntry]:
    for words in lines:
        with contextlib.suppress(InvalidHostKey, paramiko.SSHException):
            entry = HostKeyEntry.from_line(" ".join(words))
            if entry is not None:
                yield entry


def _fits(name: str, names: str) -> bool:
    """Whether the names of a line (separated by commas, with wildcards and negations, or hashed) match a host."""
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
    except (AssertionError, IndexError, ValueError):  # paramiko's exceptions for a malformed one
        return False


def _read(known_hosts: Path) -> dict[str, list[list[str]]]:
    try:
        state = known_hosts.stat()
    except FileNotFoundError:
        return {}
    return _index(known_hosts, (state.st_ino, state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=8)
def _index(known_hosts: Path, _state: tuple[int, int, int]) -> dict[str, list[list[str]]]:
    """The words of the file's lines by the names that they begin with.

    Hashed names are under HASHED, names with wildcards under PATTERNS, and lines with a marker, without it, under that.

    `_state` is the file's inode, time of change and size, which identify its content.
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


def record(endpoint: Endpoint, key: paramiko.PKey) -> None:
    """Append a key to the host's KNOWN_HOSTS (mode 0600, made if missing) atomically; the other lines stay."""
    known_hosts = endpoint.known_hosts.resolve()  # a link to the file stays one
    known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    existing = known_hosts.read_text(encoding="utf-8", errors="surrogateescape") if known_hosts.exists() else ""
    if existing and not existing.endswith("\n"):
        existing += "\n"
    line = f"{endpoint.known_name} {key.get_name()} {key.get_base64()}\n"
    write_durably(known_hosts, [(existing + line).encode("utf-8", "surrogateescape")], mode=0o600)
