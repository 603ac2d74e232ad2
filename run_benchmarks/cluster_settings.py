"""cluster_conf.py: which hosts take part, and how they are reached."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from run_benchmarks.setting_types import Count, InterfaceName, LinkSeconds, MasterPort, Port, UserName

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        return f"uid{os.getuid()}"


class ClusterConf(BaseModel):
    """The settings of cluster_conf.py."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    HOSTS: tuple[str, ...] = Field(min_length=1, description="names or IP addresses of the hosts")
    SSH_PORT: Port = Field(22, description="where sshd listens")
    SSH_USER: UserName = Field(default_factory=_user, description="who logs in; by default who runs run.py")
    SSH_KEY: Path | None = Field(None, description="a private key file; none: the agent's and the default keys")
    KNOWN_HOSTS: Path = Field(
        Path("~/.ssh/known_hosts"), description="the hosts' keys; `run.py trust` records them here"
    )
    MASTER_PORT: MasterPort = Field(29500, description="first port to try for torchrun's master")
    NETWORK_INTERFACE: InterfaceName = Field(
        "auto", description="of NCCL and Gloo, on every host; auto: the one that reaches the first host"
    )
    LINK_LIMIT: LinkSeconds = Field(120.0, description="seconds a host may be out of reach before it counts as lost")
    MIN_HOSTS: Count | None = Field(
        None,
        description="how many hosts have to pass the check for the run to go on without the others; none: all",
    )

    @field_validator("HOSTS")
    @classmethod
    def _valid_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _is_address(host) and not HOST_NAME.fullmatch(host):
                raise ValueError(f"{host!r} is neither a host name nor an IP address")
        repeated = sorted({host for host in hosts if hosts.count(host) > 1})
        if repeated:
            raise ValueError(f"each host once, but {', '.join(repeated)} stands there more than once")
        local = [host for host in hosts if host in LOCAL_NAMES]
        if local and len(hosts) > 1:
            raise ValueError(f"{local[0]!r} means nothing to the other hosts: write the name by which they reach it")
        return hosts

    @field_validator("MIN_HOSTS")
    @classmethod
    def _no_more_than_there_are(cls, least: int | None, info: ValidationInfo) -> int | None:
        there = len(info.data.get("HOSTS", ()))
        if least is not None and there and least > there:
            raise ValueError(f"at most {there}, the number of HOSTS")
        return least

    @field_validator("SSH_KEY", "KNOWN_HOSTS")
    @classmethod
    def _expanded(cls, path: Path | None) -> Path | None:
        return path.expanduser() if path is not None else None

    @field_validator("SSH_KEY")
    @classmethod
    def _key_exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"a private key file; there is none at {path}")
        return path


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
