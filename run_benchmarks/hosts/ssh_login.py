"""Logs in to a host over SSH: checks its host key, and reports errors with advice."""

import contextlib
import functools
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import PublicBlob, UnknownKeyType

from run_benchmarks.errors import ConnectError
from run_benchmarks.hosts import host_keys
from run_benchmarks.hosts.connections import Connection, Connections
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
    files = endpoint.identities or tuple(filter(Path.is_file, (Path.home() / ".ssh" / name for name in DEFAULT_FILES)))
    first, last = (files, ()) if endpoint.identities else ((), files)
    for file in first:
        for label, key in _of_file(file, endpoint, of_agent.values(), complaints):
            used.add(key.asbytes())
            yield label, key
    if endpoint.agent:
        yield from (("a key of the agent", key) for blob, key in of_agent.items() if blob not in used)
    for file in last:
        yield from _of_file(file, endpoint, of_agent.values(), complaints)


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
    """The key combined with its certificate."""
    blob = PublicBlob.from_file(str(certificate))
    if not blob.key_type.endswith(SUFFIX):
        raise ValueError("it is no certificate")
    if paramiko.PKey.from_type_string(blob.key_type.removesuffix(SUFFIX), blob.key_blob) != key:
        raise ValueError("it certifies another key")
    certified = paramiko.PKey.from_path(file)
    certified.load_certificate(str(certificate))
    return certified


CONNECT_SECONDS = 10.0
MIN_SECONDS = 0.1
CLOSE_SECONDS = 1.0
BANNER_RETRIES, MAX_PAUSE_SECONDS = 10, 4
KEEPALIVE_SECONDS = 15


class ClientTransport(paramiko.Transport):
    """A connection that requests host keys in our order: paramiko's own never requests a certified one first."""

    def __init__(self, connection: Connection, algorithms: tuple[str, ...]) -> None:
        self._algorithms = algorithms
        super().__init__(connection)  # type: ignore[arg-type] # it needs a socket's methods alone
        # AES-GCM first: paramiko compares the checksums of all others byte by byte in Python.
        options = self.get_security_options()
        options.ciphers = tuple(sorted(options.ciphers, key=lambda name: "gcm" not in name))

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """The kinds of host keys that are asked for, the best first."""
        return self._algorithms

    def close(self) -> None:
        """Close the connection; its thread is woken, whereas paramiko's polls ten times a second."""
        if isinstance(self.sock, socket.socket):
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
            super().close()
            return
        # If a jump host's connection accepts no more data, paramiko would wait forever to announce the close.
        closing = threading.Thread(target=super().close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def connect(endpoint: Endpoint, ways: Connections) -> paramiko.Transport:
    """A connection to a host, over its jump hosts; an overloaded host is asked again for some time.

    Raises:
        HostKeyError: the host's key is unknown, differs from the recorded one, or has an invalid certificate.
        ConnectError: the host cannot be reached, or refuses the login.
    """
    for attempt in range(BANNER_RETRIES):
        began = time.monotonic()
        try:
            return log_in(endpoint, ways)
        except paramiko.SSHException as error:
            # An overloaded sshd (MaxStartups) drops new connections before its banner; the others are final.
            # Asking a host again that was silent all the time does not help.
            last = attempt == BANNER_RETRIES - 1 or time.monotonic() >= began + CONNECT_SECONDS - 1.0
            if "banner" not in str(error) or last:
                dropped = f" ({attempt + 1} times; MaxStartups of its sshd?)" if attempt else ""
                raise ConnectError(endpoint.host, f"SSH on port {endpoint.port}: {error}{dropped}") from error
            time.sleep(random.uniform(0.2, 1.0) * min(attempt + 1, MAX_PAUSE_SECONDS))
    raise AssertionError("the last attempt returns or raises")


def log_in(endpoint: Endpoint, ways: Connections) -> paramiko.Transport:
    """One attempt to log in.

    Raises:
        HostKeyError, ConnectError: as for `connect`.
        paramiko.SSHException: any other failure, such as a missing banner.
    """
    until = time.monotonic() + CONNECT_SECONDS
    known = _known(endpoint)
    with _greeted(endpoint, known, ways, until) as transport:
        host_keys.verify(endpoint, known, transport.get_remote_server_key())
        _authenticate(transport, endpoint, until)
        transport.set_keepalive(KEEPALIVE_SECONDS)
        return transport


def scan(endpoint: Endpoint, ways: Connections) -> paramiko.PKey:
    """A host's key, without logging in; the login to jump hosts must succeed.

    Raises:
        ConnectError: the host cannot be reached.
    """
    try:
        with _greeted(endpoint, _known(endpoint), ways, time.monotonic() + CONNECT_SECONDS) as transport:
            key = transport.get_remote_server_key()
            transport.close()
            return key
    except paramiko.SSHException as error:
        why = str(error) or "it closed the connection"
        raise ConnectError(endpoint.host, f"no SSH server shows its key on port {endpoint.port}: {why}") from error


def _known(endpoint: Endpoint) -> host_keys.Known:
    try:
        return host_keys.load(endpoint)
    except OSError as error:
        raise ConnectError(endpoint.host, f"its recorded keys cannot be read: {error}") from error


@contextlib.contextmanager
def _greeted(
    endpoint: Endpoint, known: host_keys.Known, ways: Connections, until: float
) -> Iterator[paramiko.Transport]:
    """A connection with keys exchanged, closed if the code inside fails; `until` is in monotonic seconds."""
    transport: paramiko.Transport | None = None
    connection: Connection | None = None
    try:
        connection = ways.open(endpoint, until)
        transport = ClientTransport(connection, host_keys.algorithms(known))
        left = max(until - time.monotonic(), MIN_SECONDS)
        transport.banner_timeout = transport.auth_timeout = left
        transport.start_client(timeout=left)
        yield transport
    except BaseException as error:
        if transport is not None:
            transport.close()
        if connection is not None:
            connection.close()
        said = ways.said(connection)
        if isinstance(error, EOFError):
            raise ConnectError(
                endpoint.host, f"port {endpoint.port}: the connection was closed at the login{said}"
            ) from error
        if isinstance(error, ConnectionResetError) and connection is None:
            raise paramiko.SSHException(f"the connection was dropped before its banner ({error}){said}") from error
        if isinstance(error, OSError):
            why = str(error) or type(error).__name__
            raise ConnectError(endpoint.host, f"port {endpoint.port} cannot be reached: {why}{said}") from error
        if said and isinstance(error, paramiko.SSHException):  # its end is none that waiting mends
            raise ConnectError(endpoint.host, f"SSH on port {endpoint.port}: {error}{said}") from error
        raise


def _authenticate(transport: paramiko.Transport, endpoint: Endpoint, until: float) -> None:
    """Try the keys in turn."""
    tried: list[str] = []
    refusal = "no key to log in with"
    with login_keys(endpoint) as (keys, complaints):
        for label, key in keys:
            tried.append(label)
            transport.auth_timeout = max(until - time.monotonic(), MIN_SECONDS)
            try:
                further = transport.auth_publickey(endpoint.user, key)
            except (paramiko.BadAuthenticationType, paramiko.AuthenticationException) as error:
                refusal = str(error) or type(error).__name__
                if not transport.is_active():
                    refusal += "; the host hung up: with many keys tried, name one (SSH_KEY, or IdentitiesOnly)"
                    break
                continue
            if not further:
                return
            refusal = f"after the key the host asks for {', '.join(further)}, which cannot be given without a person"
            break
    using = f"key {endpoint.key}" if endpoint.key else f"{', '.join(tried) or 'no key'}"
    also = "".join(f"; {complaint}" for complaint in complaints)
    raise ConnectError(
        endpoint.host,
        f"login as {endpoint.user} on port {endpoint.port} with {using} was refused ({refusal}){also}",
    )
