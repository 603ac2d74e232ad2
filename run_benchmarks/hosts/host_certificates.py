"""Verifies host certificates: host keys signed by an authority that a known_hosts file names (`@cert-authority`).

paramiko uses the key of a certificate and checks nothing else. cryptography reads it and checks the signature; the
other checks are those of OpenSSH's client (PROTOCOL.certkeys): kind, names, time, options, and the authority.
"""

import base64
import time
from collections.abc import Collection

import paramiko
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

SUFFIX = "-cert-v01@openssh.com"


class CertificateError(Exception):
    """The certificate is not valid for the host; the message says why."""


def parse(blob: bytes) -> SSHCertificate:
    """Read a certificate as it came from the host.

    Raises:
        CertificateError: the bytes are no valid certificate, or of a kind that is not supported.
    """
    name = blob[4 : 4 + int.from_bytes(blob[:4])]
    try:
        found = load_ssh_public_identity(b"%b %b" % (name, base64.b64encode(blob)))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"it cannot be read: {error}") from error
    if not isinstance(found, SSHCertificate):
        raise CertificateError("it is a key without a certificate")
    return found


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
    if certificate.type is not SSHCertificateType.HOST:
        raise CertificateError("it is no certificate of a host")
    authority = _authority(certificate, blob)
    if authority in map(_line, revoked):
        raise CertificateError("its authority is marked @revoked")
    if authority not in map(_line, authorities):
        raise CertificateError("its authority is none that a @cert-authority line names for this host")
    try:
        certificate.verify_cert_signature()
    except (InvalidSignature, ValueError, TypeError) as error:
        raise CertificateError("its signature is not its authority's") from error
    principals = [each.decode("utf-8", errors="replace") for each in certificate.valid_principals]
    if name not in (principal.lower() for principal in principals):
        names = ", ".join(principals) or "nobody (ssh-keygen -s ... -n NAMES gives it names)"
        raise CertificateError(f"it is for {names}, not for {name}")
    if not certificate.valid_after <= now < certificate.valid_before:
        period = f"from {_day(certificate.valid_after)} to {_day(certificate.valid_before)}"
        raise CertificateError(f"it is valid {period} (ssh-keygen -L shows it), not now")
    if certificate.critical_options:
        raise CertificateError("it has critical options, of which none is known for a host")


def _authority(certificate: SSHCertificate, blob: bytes) -> bytes:
    """The authority's key in the form of `_line`; SHA-1, of which "ssh-rsa" before a signature tells, is refused."""
    try:
        key = certificate.signature_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"its authority's key cannot be read: {error}") from error
    if isinstance(key, RSAPublicKey):
        size = (key.key_size + 7) // 8  # of the signature, with which the certificate ends
        if blob[:-size].endswith(b"\0\0\0\x07ssh-rsa%b" % size.to_bytes(4)):
            raise CertificateError("its signature is of kind 'ssh-rsa', which is not accepted")
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def _line(key: paramiko.PKey) -> bytes:
    return f"{key.get_name()} {key.get_base64()}".encode()


def _day(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "ever"
