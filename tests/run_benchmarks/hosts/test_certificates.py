"""Certificates of hosts and of users, made by ssh-keygen and used with a real sshd."""

import dataclasses
import getpass
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from run_benchmarks.errors import ConnectError, HostKeyError
from run_benchmarks.hosts import host_certificates
from run_benchmarks.hosts.connections import Connections
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.host_certificates import CertificateError
from run_benchmarks.hosts.ssh import SshHost
from run_benchmarks.hosts.ssh_login import connect, scan
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer, make_key, public_part

SECONDS = 30.0
Make = Callable[..., SshServer]
KINDS = {"ed25519": ["-t", "ed25519"], "ecdsa": ["-t", "ecdsa", "-b", "384"], "rsa": ["-t", "rsa", "-b", "2048"]}


def keygen(*words: str | Path) -> None:
    subprocess.run(["ssh-keygen", "-q", *words], check=True, capture_output=True)


def sign(authority: Path, key: Path, *options: str) -> Path:
    """The certificate of a key, as ssh-keygen puts it beside it."""
    keygen("-s", authority, "-I", "test", *options, f"{key}.pub")
    return key.with_name(f"{key.name}-cert.pub")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture
def certified(make_sshd: Make, authority: Path) -> Iterator[SshServer]:
    """A server whose key is certified for 127.0.0.1, and is recorded nowhere."""
    server = make_sshd("certified")
    server.stop()
    restart(server, authority, "-h", "-n", f"node,{ADDRESS}")
    yield server


def restart(server: SshServer, authority: Path, *options: str) -> None:
    certificate = sign(authority, server.host_key, *options)
    server.stop()
    server.extra = f"HostCertificate {certificate}"
    server.start()
    server.known_hosts.write_text(f"@cert-authority * {public_part(authority)}\n")


def refusal(endpoint: Endpoint) -> str:
    with pytest.raises(HostKeyError) as caught:
        SshHost(endpoint).connect()
    return str(caught.value)


def test_a_certified_host_lets_us_in_and_no_other_does(certified: SshServer, authority: Path, tmp_path: Path) -> None:
    host = certified.host()
    host.connect()
    assert host.run(["echo", "in"], deadline=SECONDS).stdout == "in\n"
    host.close()
    endpoint, known = certified.endpoint(), certified.known_hosts
    assert scan(endpoint, Connections(connect)).public_blob is not None
    good, stranger = public_part(authority), public_part(make_key(tmp_path / "stranger"))
    for names in (f"[{ADDRESS}]:*", ADDRESS, paramiko.HostKeys.hash_host(ADDRESS), "127.*,!other"):
        known.write_text(f"@cert-authority {names} {good}\n")
        host.connect()
        host.close()
    known.write_text(f"@cert-authority 127.*,!{ADDRESS} {good}\n")
    assert "unknown host key" in refusal(endpoint)
    known.write_text(f"@cert-authority * {stranger}\n")
    assert "its authority is none that" in refusal(endpoint)
    known.write_text(f"@cert-authority * {good}\n@revoked * {good}\n")
    assert "its authority is marked @revoked" in refusal(endpoint)
    known.write_text(f"@cert-authority * {good}\n@revoked * {public_part(certified.host_key)}\n")
    assert "is marked @revoked" in refusal(endpoint)
    known.write_text(f"* {good}\n")  # an authority's own key is no host's
    assert "CHANGED" in refusal(endpoint)
    known.write_text(f"@cert-authority * {stranger}\n[{ADDRESS}]:{certified.port} {public_part(certified.host_key)}\n")
    host.connect()  # the plain key is recorded
    host.close()
    known.write_text(f"@cert-authority * {good}\n")
    assert "is for node, 127.0.0.1, not for gpu01" in refusal(dataclasses.replace(endpoint, host_key_alias="gpu01"))
    host = SshHost(dataclasses.replace(endpoint, host_key_alias="NODE"))
    host.connect()
    host.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-h", "-n", "other"], "it is for other, not for 127.0.0.1"),
        (["-h"], "it is for nobody"),
        (["-n", ADDRESS], "it is no certificate of a host"),
        (["-h", "-n", ADDRESS, "-V", "20200101:20200201"], "it is valid from 2020"),
        (["-h", "-n", ADDRESS, "-V", "+1d:+2d"], "it is valid from"),
        (["-h", "-n", ADDRESS, "-O", "critical:x@y=z"], "critical options"),
    ],
)
def test_a_certificate_that_does_not_vouch(
    sshd: SshServer, authority: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    key = make_key(tmp_path / "key")
    blob = paramiko.pkey.PublicBlob.from_file(str(sign(authority, key, *options))).key_blob
    trusted = [paramiko.PKey.from_path(authority)]
    with pytest.raises(CertificateError, match=message):
        host_certificates.verify(blob, ADDRESS, trusted, [])


@pytest.mark.parametrize("signer", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_keys(tmp_path: Path, kind: str, signer: str) -> None:
    for name, words in (("key", KINDS[kind]), ("ca", KINDS[signer])):
        keygen("-N", "", *words, "-f", tmp_path / name)
    blob = paramiko.pkey.PublicBlob.from_file(str(sign(tmp_path / "ca", tmp_path / "key", "-h", "-n", "a"))).key_blob
    trusted = [paramiko.PKey.from_path(tmp_path / "ca")]
    host_certificates.verify(blob, "a", trusted, [])
    if signer == "rsa":
        old = paramiko.pkey.PublicBlob.from_file(
            str(sign(tmp_path / "ca", tmp_path / "key", "-t", "ssh-rsa", "-h", "-n", "a"))
        ).key_blob
        with pytest.raises(CertificateError, match="'ssh-rsa', which is not accepted"):
            host_certificates.verify(old, "a", trusted, [])


@pytest.fixture(scope="module")
def blob(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    key = make_key(tmp_path_factory.mktemp("blob") / "key")
    return bytes(paramiko.pkey.PublicBlob.from_file(str(sign(authority, key, "-h", "-n", "a"))).key_blob)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_changed_certificate_vouches(blob: bytes, authority: Path, data: st.DataObject) -> None:
    trusted = [paramiko.PKey.from_path(authority)]
    host_certificates.verify(blob, "a", trusted, [])
    changed = bytearray(blob)
    place = data.draw(st.integers(0, len(blob) - 1))
    how = data.draw(st.sampled_from(("flip", "cut", "add", "double")))
    if how == "flip":
        changed[place] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del changed[place:]
    elif how == "add":
        changed[place:place] = data.draw(st.binary(min_size=1, max_size=8))
    else:
        changed += blob
    with pytest.raises(CertificateError):
        host_certificates.verify(bytes(changed), "a", trusted, [], time.time())


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_s_certificate_lets_us_in(make_sshd: Make, authority: Path, tmp_path: Path, kind: str) -> None:
    """Beside its key, and elsewhere (CertificateFile); the key alone does not."""
    server = make_sshd("users", f"TrustedUserCAKeys {authority}.pub\nAuthorizedKeysFile none")
    key = tmp_path / "user"
    keygen("-N", "", *KINDS[kind], "-f", key)
    with pytest.raises(ConnectError, match="was refused"):
        server.host(key=key).connect()
    certificate = sign(authority, key, "-n", getpass.getuser())
    host = server.host(key=key)
    host.connect()
    host.close()
    elsewhere = certificate.rename(tmp_path / "elsewhere.pub")
    endpoint = dataclasses.replace(server.endpoint(key=key), certificates=(elsewhere,))
    host = SshHost(endpoint)
    host.connect()
    host.close()
    other = make_key(tmp_path / "other")
    with pytest.raises(ConnectError, match=r"elsewhere\.pub cannot .*another key"):
        SshHost(dataclasses.replace(endpoint, key=other)).connect()


def test_a_key_of_the_agent_alone(sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encrypted file, or its public part, stands for the key that the agent holds."""
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + SECONDS
        while not socket.exists() and time.monotonic() < limit:
            time.sleep(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        for name in ("noise", "held"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
            subprocess.run(["ssh-add", "-q", tmp_path / name], check=True)
        with (sshd.folder / "authorized_keys").open("a") as file:
            file.write(f"{public_part(tmp_path / 'held')}\n")
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", tmp_path / "held"], check=True)
        plain = dataclasses.replace(sshd.endpoint(), key=None)
        for identities, by_agent in ((("held",), False), (("held.pub",), False), ((), True)):
            paths = tuple(tmp_path / name for name in identities)
            host = SshHost(dataclasses.replace(plain, identities=paths, agent=by_agent))
            host.connect()
            host.close()
        with pytest.raises(ConnectError, match=r"with .*noise \(by the agent\)|noise was refused"):
            SshHost(dataclasses.replace(plain, identities=(tmp_path / "noise",), agent=False)).connect()
        # SSH_KEY is the one key: with the agent's beside it a run would say nothing of a key that does not fit.
        with pytest.raises(ConnectError, match="noise was refused"):
            SshHost(dataclasses.replace(plain, key=tmp_path / "noise", agent=True)).connect()
    finally:
        agent.kill()
        agent.wait()
