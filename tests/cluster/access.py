"""Keys and files by which a person or the controller reaches the hosts of a bed, all in the bed's folder."""

from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cluster.host import SSH_PORT, Access, ClusterHost

KEY_FILE = "id_ed25519"
HOST_KEY = "ssh_host_ed25519_key"
KNOWN_HOSTS = "known_hosts"
CLUSTER_CONF = "cluster_conf.py"
TEST_CONF = "test_conf.py"
FILES = (KEY_FILE, f"{KEY_FILE}.pub", KNOWN_HOSTS, CLUSTER_CONF, TEST_CONF)


def new_key_pair(comment: str) -> tuple[str, str]:
    """A fresh Ed25519 key pair: the private key in OpenSSH's format, and the line of the public one."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} {comment}\n"


def write_keys(folder: Path, hosts: Sequence[ClusterHost]) -> None:
    """Write a fresh client key, a fresh key for each host (private keys with mode 0600), and known_hosts."""
    _write_key_pair(folder / KEY_FILE, "clusterdyno-testbed")
    known = []
    for host in hosts:
        public = _write_key_pair(host.folder / HOST_KEY, host.name)
        known.append(f"{host.address},{host.name} {' '.join(public.split()[:2])}\n")
    (folder / KNOWN_HOSTS).write_text("".join(known))


def _write_key_pair(file: Path, comment: str) -> str:
    private, public = new_key_pair(comment)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(private)
    file.with_name(f"{file.name}.pub").write_text(public)
    return public


def read_access(folder: Path, host: ClusterHost, hosts: Sequence[ClusterHost]) -> Access:
    """What a host lets in and shows, from the files write_keys() wrote."""
    return Access(
        etc_hosts=etc_hosts(hosts),
        client_public_key=(folder / f"{KEY_FILE}.pub").read_text(),
        host_private_key=(host.folder / HOST_KEY).read_text(),
    )


def etc_hosts(hosts: Sequence[ClusterHost]) -> str:
    """The text of /etc/hosts that every host of the bed gets."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", *(f"{host.address} {host.name}" for host in hosts)]
    return "\n".join(lines) + "\n"


def write_cluster_conf(folder: Path, hosts: Sequence[ClusterHost]) -> None:
    """Write the cluster_conf.py that names the bed's hosts."""
    addresses = "".join(f"    {host.address!r},  # {host.name}\n" for host in hosts)
    text = (
        '"""The hosts of a test bed (python -m tests.cluster up)."""\n\n'
        f"HOSTS = [\n{addresses}]\n"
        f"SSH_PORT = {SSH_PORT}\n"
        'SSH_USER = "root"\n'
        f"SSH_KEY = {str(folder / KEY_FILE)!r}\n"
        f"KNOWN_HOSTS = {str(folder / KNOWN_HOSTS)!r}\n"
    )
    (folder / CLUSTER_CONF).write_text(text)


def write_test_conf(folder: Path, *, base_image: str, wheelhouse: Path, nnodes: int) -> None:
    """Write a test_conf.py for the Docker runtime and vendor cpu: one network case over all hosts of the bed."""
    text = (
        '"""A first run on a test bed: all_reduce over gloo between containers on all of its hosts."""\n\n'
        'VENDOR = "cpu"\n'
        'RUNTIME = "docker"\n'
        f"BASE_IMAGE = {base_image!r}\n"
        f"WHEELHOUSE = {str(wheelhouse)!r}\n"
        'CASES = ["ALL_REDUCE"]\n\n'
        "ALL_REDUCE = {\n"
        '    "model": "network",\n'
        '    "framework": "pytorch",\n'
        f'    "config": "config_CPUx{min(nnodes, 2)}x2",\n'
        '    "repeat": 1,\n'
        f'    "nnodes": {nnodes},\n'
        '    "nproc": 2,\n'
        "}\n"
    )
    (folder / TEST_CONF).write_text(text)


def ssh_argv(folder: Path, host: ClusterHost) -> list[str]:
    """The OpenSSH command that reaches a host with the bed's key and known_hosts; append the remote command to it."""
    options = [f"UserKnownHostsFile={folder / KNOWN_HOSTS}", "StrictHostKeyChecking=yes", "BatchMode=yes"]
    words = [word for option in options for word in ("-o", option)]
    return ["ssh", "-F", "none", "-i", str(folder / KEY_FILE), *words, "-p", str(SSH_PORT), f"root@{host.address}"]
