"""Provides the keys for a login in the order of trial: files with their certificates, then the agent's keys."""

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
    """Labelled keys, and a list to which errors of unusable keys are added during the iteration."""
    complaints: list[str] = []
    agent = paramiko.Agent() if endpoint.key is None else None
    try:
        yield _keys(endpoint, agent, complaints), complaints
    finally:
        if agent is not None:
            agent.close()


def _keys(endpoint: Endpoint, agent: paramiko.Agent | None, complaints: list[str]) -> Iterator[LabelledKey]:
    """The keys one by one, so that the agent is not asked if the first file succeeds."""
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
    """A file's key, each certificate for it first; the agent's key if the file has a public one or is encrypted."""
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
    """The agent's key whose public part is in the file, or in the file beside it."""
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
    """The file's private key, read once for all hosts; `_state` identifies the content of the file."""
    key = paramiko.PKey.from_path(file)
    key.public_blob = None  # a certificate beside it is offered separately
    return key


def _certified(file: Path, key: paramiko.PKey, certificate: Path) -> paramiko.PKey:
    """The key combined with its certificate.

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
