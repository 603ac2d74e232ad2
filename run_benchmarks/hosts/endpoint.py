"""Describes the way to a host: address and port, user and keys, trusted host keys, and jump hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SSH_PORT = 22
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """How to log in to a host.

    Attributes:
        host: its name in HOSTS (for a jump host, the name that led to it).
        key: the one key to use; without it those of `identities`, of the agent and the default files are tried.
        known_hosts: the file of host keys, to which `run.py trust` adds.
        address: the name or address to connect to, if it differs from `host`.
        host_key_alias: the name under which its key is recorded, without a port.
        more_known_hosts: further files of host keys, never written.
        identities: key files to try first; a `.pub` names a key of the agent.
        certificates: certificates of users in addition to those beside their keys.
        agent: whether the agent may offer keys of its own choice.
        jump: the host through which this one is reached.
        proxy_command: a command of the head node whose stdin and stdout are the connection.
    """

    host: str
    port: int
    user: str
    key: Path | None
    known_hosts: Path
    address: str = ""
    host_key_alias: str = ""
    more_known_hosts: tuple[Path, ...] = ()
    identities: tuple[Path, ...] = ()
    certificates: tuple[Path, ...] = ()
    agent: bool = True
    jump: Endpoint | None = None
    proxy_command: str = ""

    @property
    def target(self) -> str:
        """The name or address to connect to."""
        return self.address or self.host

    @property
    def known_name(self) -> str:
        """Its name in known_hosts files."""
        return self.host_key_alias or known_name(self.target, self.port)

    @property
    def certified_name(self) -> str:
        """The name that a host certificate must contain."""
        return (self.host_key_alias or self.target).lower()

    @property
    def known_hosts_files(self) -> tuple[Path, ...]:
        """All files of host keys, the writable one first."""
        return (self.known_hosts, *self.more_known_hosts)

    @property
    def way(self) -> tuple[Endpoint, ...]:
        """The jump hosts on the way to it, the first one first, and itself."""
        return (*(self.jump.way if self.jump else ()), self)


def is_local(name: str) -> bool:
    """Whether a name of HOSTS is the head node itself, which is reached without ssh (`hosts.local.LocalHost`)."""
    return name in LOCAL_NAMES


def known_name(host: str, port: int) -> str:
    """A host's name in a known_hosts file."""
    return host if port == SSH_PORT else f"[{host}]:{port}"
