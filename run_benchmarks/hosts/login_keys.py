"""The keys to log in with, in the order in which they are tried: files with their certificates, then the agent's."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import PublicBlob, UnknownKeyType

from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.host_certificates import SUFFIX

DEFAULT_FILES = ("id_ed25519", "id_ecdsa", "id_rsa")
UNREADABLE = (paramiko.SSHException, UnknownKeyType, UnsupportedAlgorithm, OSError, ValueError, TypeError)
LabelledKey = tuple[str, paramiko.PKey]


@contextlib.contextmanager
def login_keys(endpoint: Endpoint) -> Iterator[tuple[Iterator[LabelledKey], list[str]]]:
    """Keys with what they are called, and a list that grows with what is wrong with those that cannot be used."""
    complaints: list[str] = []
    agent = paramiko.Agent() if endpoint.key is None else None
    try:
        yield _keys(endpoint, agent, complaints), complaints
    finally:
        if agent is not None:
            agent.close()


def _keys(endpoint: Endpoint, agent: paramiko.Agent | None, complaints: list[str]) -> Iterator[LabelledKey]:
    """One after the other, so that the agent is asked for nothing where the first file does."""
    if endpoint.key is not None:
        yield from _of_file(endpoint.key, endpoint, (), complaints)
        return
    assert agent is not None
    of_agent = {key.asbytes(): key for key in agent.get_keys()}
    used: set[bytes] = set()
    files = endpoint.identities or tuple(path for path in _default_files() if path.is_file())
    first, last = (files, ()) if endpoint.identities else ((), files)
    for file in first:
        for label, key in _of_file(file, endpoint, of_agent.values(), complaints):
            used.add(key.asbytes())
            yield label, key
    if endpoint.agent:
        yield from (("a key of the agent", key) for blob, key in of_agent.items() if blob not in used)
    for file in last:
        yield from _of_file(file, endpoint, of_agent.values(), complaints)


def _default_files() -> Iterator[Path]:
    return (Path.home() / ".ssh" / name for name in DEFAULT_FILES)


def _of_file(
    file: Path, endpoint: Endpoint, of_agent: Iterable[paramiko.PKey], complaints: list[str]
) -> Iterator[LabelledKey]:
    """A file's key, each certificate for it first; the agent's key where the file has a public one or is encrypted."""
    try:
        key = _load(file, _state(file))
    except UNREADABLE as error:
        if (held := _held(file, of_agent)) is not None:
            yield f"{file} (by the agent)", held
            return
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be used: {error}"
        complaints.append(f"{file} {why}")
        return
    beside = file.with_name(f"{file.name}-cert.pub")
    for certificate in dict.fromkeys((*endpoint.certificates, *((beside,) if beside.is_file() else ()))):
        try:
            yield f"{file} with {certificate.name}", _certified(file, key, certificate)
        except UNREADABLE as error:
            complaints.append(f"{certificate} cannot be used with {file}: {error}")
    yield str(file), key


def _held(file: Path, of_agent: Iterable[paramiko.PKey]) -> paramiko.PKey | None:
    """The agent's key whose public part the file is, or has beside it."""
    for path in (file.with_name(f"{file.name}.pub"), file):
        with contextlib.suppress(*UNREADABLE):
            blob = PublicBlob.from_file(str(path)).key_blob
            return next((key for key in of_agent if key.asbytes() == blob), None)
    return None


def _state(file: Path) -> tuple[int, int, int]:
    state = file.stat()
    return state.st_ino, state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=16)
def _load(file: Path, _state: tuple[int, int, int]) -> paramiko.PKey:
    """The file's private key, read once for all hosts; `_state` tells another file of that name."""
    key = paramiko.PKey.from_path(file)
    key.public_blob = None  # a certificate beside it is taken by itself
    return key


def _certified(file: Path, key: paramiko.PKey, certificate: Path) -> paramiko.PKey:
    """The key with its certificate.

    Raises:
        ValueError: the certificate belongs to another key.
    """
    blob = PublicBlob.from_file(str(certificate))
    if not blob.key_type.endswith(SUFFIX):
        raise ValueError("it is no certificate")
    if paramiko.PKey.from_type_string(blob.key_type.removesuffix(SUFFIX), blob.key_blob) != key:
        raise ValueError("it certifies another key")
    certified = paramiko.PKey.from_path(file)
    certified.load_certificate(str(certificate))
    return certified
