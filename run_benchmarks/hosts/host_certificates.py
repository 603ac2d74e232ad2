"""Verifies host certificates: host keys signed by an authority that a known_hosts file names (`@cert-authority`).

paramiko uses the key of a certificate and checks nothing else; the checks here are those of OpenSSH's client
(PROTOCOL.certkeys): kind, names, time, options, and the authority's signature over all of it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import paramiko

SUFFIX = "-cert-v01@openssh.com"
HOST_KIND = 2
# Fields of the key itself, by its type: s a string, i a number.
KEY_FIELDS = {
    "ssh-ed25519": 1,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "ssh-rsa": 2,
}
SIGNATURES = {
    "ssh-rsa": ("rsa-sha2-256", "rsa-sha2-512")
}  # never SHA-1; other keys have one kind with the name of the key


class CertificateError(Exception):
    """The certificate is not valid for the host; the message says why."""


@dataclass(frozen=True, kw_only=True)
class HostCertificate:
    """The content of a certificate; times are in seconds since 1970."""

    kind: int
    principals: tuple[str, ...]
    valid_from: int
    valid_until: int
    critical_options: bytes
    authority: paramiko.PKey
    signed: bytes
    signature: bytes


class _Reader:
    """Fields of a blob; unlike paramiko's reader, it refuses a field that is longer than the rest."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.place:
            raise CertificateError("it is cut off")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def string(self) -> bytes:
        return self.take(self.number(4))

    def text(self) -> str:
        return self.string().decode("utf-8", errors="replace")

    def is_done(self) -> bool:
        return self.place == len(self.data)


def parse(blob: bytes) -> HostCertificate:
    """Read a certificate as it came from the host.

    Raises:
        CertificateError: the bytes are no valid certificate.
    """
    reader = _Reader(blob)
    name = reader.text().removesuffix(SUFFIX)
    if name not in KEY_FIELDS:
        raise CertificateError(f"its key's type {name!r} is not supported")
    for _ in range(1 + KEY_FIELDS[name]):  # the nonce and the key
        reader.string()
    reader.take(8)  # the serial number
    kind = reader.number(4)
    reader.string()  # the authority's name for it
    principals = tuple(_texts(reader.string()))
    valid_from, valid_until = reader.number(8), reader.number(8)
    critical = reader.string()
    reader.string()  # extensions: none of a host's concerns us
    reader.string()  # reserved
    authority = reader.string()
    signed = blob[: reader.place]
    signature = reader.string()
    if not reader.is_done():
        raise CertificateError("it is longer than it says")
    return HostCertificate(
        kind=kind,
        principals=principals,
        valid_from=valid_from,
        valid_until=valid_until,
        critical_options=critical,
        authority=_plain_key(authority),
        signed=signed,
        signature=signature,
    )


def verify(
    blob: bytes,
    name: str,
    authorities: Collection[paramiko.PKey],
    revoked: Collection[paramiko.PKey],
    now: float | None = None,
) -> None:
    """Check that one of `authorities` certifies, at time `now` (epoch seconds), that the key belongs to host `name`.

    Raises:
        CertificateError: none of them does.
    """
    certificate = parse(blob)
    now = time.time() if now is None else now
    if certificate.kind != HOST_KIND:
        raise CertificateError("it is no certificate of a host")
    if certificate.authority in revoked:
        raise CertificateError("its authority is marked @revoked")
    if certificate.authority not in authorities:
        raise CertificateError("its authority is none that a @cert-authority line names for this host")
    _verify_signature(certificate)
    if name not in (principal.lower() for principal in certificate.principals):
        names = ", ".join(certificate.principals) or "nobody (ssh-keygen -s ... -n NAMES gives it names)"
        raise CertificateError(f"it is for {names}, not for {name}")
    if not certificate.valid_from <= now < certificate.valid_until:
        raise CertificateError(f"it is valid {_period(certificate)} (ssh-keygen -L shows it), not now")
    if certificate.critical_options:
        raise CertificateError("it has critical options, of which none is known for a host")


def _verify_signature(certificate: HostCertificate) -> None:
    authority, reader = certificate.authority, _Reader(certificate.signature)
    kind = reader.text()
    reader.string()
    if kind not in SIGNATURES.get(authority.get_name(), (authority.get_name(),)):
        raise CertificateError(f"its signature is of kind {kind!r}, which is not accepted")
    try:
        sound = reader.is_done() and authority.verify_ssh_sig(
            certificate.signed, paramiko.Message(certificate.signature)
        )
    except (paramiko.SSHException, ValueError, TypeError) as error:
        raise CertificateError(f"its signature cannot be read: {error}") from error
    if not sound:
        raise CertificateError("its signature is not its authority's")


def _plain_key(blob: bytes) -> paramiko.PKey:
    name = _Reader(blob).text()
    if name not in KEY_FIELDS:  # a certificate, which cannot sign another, is none of them either
        raise CertificateError(f"its authority's key is of type {name!r}, which is not supported")
    try:
        return paramiko.PKey.from_type_string(name, blob)
    except (paramiko.SSHException, ValueError, TypeError) as error:
        raise CertificateError(f"its authority's key cannot be read: {error}") from error


def _texts(data: bytes) -> Iterator[str]:
    reader = _Reader(data)
    while not reader.is_done():
        yield reader.text()


def _period(certificate: HostCertificate) -> str:
    def day(seconds: int) -> str:
        try:
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        except (OverflowError, ValueError, OSError):
            return "ever"

    return f"from {day(certificate.valid_from)} to {day(certificate.valid_until)}"
