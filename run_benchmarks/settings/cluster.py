"""Defines the settings of cluster_conf.py: the hosts that take part, and how they are reached."""

import getpass
import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from run_benchmarks.hosts.endpoint import is_local
from run_benchmarks.settings.launcher_names import LAUNCHERS, UNNAMED, LauncherName
from run_benchmarks.settings.value_types import (
    Count,
    InterfaceName,
    LinkSeconds,
    Load,
    MasterPort,
    Port,
    Seconds,
    SlurmImage,
    SlurmOption,
    SlurmWord,
    UserName,
    repeated_hosts,
)

USER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?"
BRACKETED, NAME_AND_PORT = re.compile(r"\[([^\]]+)\](?::(\d{1,5}))?"), re.compile(r"([^:]+):(\d{1,5})")
HOST_FORMS = "host, user@host:port, [IPv6]:port, or {'host': ..., 'user': ..., 'port': ..., 'key': ...}"
ENTRY_KEYS: dict[str, type] = {"host": str, "user": str, "port": int, "key": str}
NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)+\.?")  # no host has such a name: resolvers take it for an IPv4 address
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")


@dataclass(frozen=True, kw_only=True)
class HostAccess:
    """The settings of one item of HOSTS for its own host; None if it has none."""

    user: str | None = None
    port: int | None = None
    key: Path | None = None


def parse_host(text: str) -> tuple[str, HostAccess]:
    """Split `user@host:port`, where user and port are optional; an IPv6 address with a port is in brackets.

    Raises:
        ValueError: the text has another form.
    """
    user, at, rest = text.rpartition("@")
    host, port = rest, ""
    if (found := BRACKETED.fullmatch(rest)) or (rest.count(":") == 1 and (found := NAME_AND_PORT.fullmatch(rest))):
        host, port = found[1], found[2] or ""
    if not is_address(host) and (not HOST_NAME.fullmatch(host) or NUMBERS.fullmatch(host)):
        raise ValueError(f"{host!r} is neither a host name nor an IP address ({HOST_FORMS})")
    if at and not re.fullmatch(USER_PATTERN, user):
        raise ValueError(f"{user!r} is no user's name ({HOST_FORMS})")
    if port and not 1 <= int(port) <= 65535:
        raise ValueError(f"port {port} is not within 1 to 65535")
    return host, HostAccess(user=user or None, port=int(port) if port else None)


def _parse_entry(entry: object) -> tuple[str, HostAccess]:
    """One item of HOSTS, in either form."""
    if isinstance(entry, str):
        return parse_host(entry)
    if not isinstance(entry, dict):
        raise ValueError(f"{entry!r} is neither text nor a dict ({HOST_FORMS})")
    _check_keys(entry)
    host, access = parse_host(entry.get("host", ""))
    if (access.user and "user" in entry) or (access.port and "port" in entry):
        raise ValueError(f"{entry!r} has its user or port twice")
    if not 1 <= entry.get("port", 1) <= 65535:
        raise ValueError(f"port {entry['port']} is not within 1 to 65535")
    if "user" in entry and not re.fullmatch(USER_PATTERN, entry["user"]):
        raise ValueError(f"{entry['user']!r} is no user's name ({HOST_FORMS})")
    file = Path(entry["key"]).expanduser() if "key" in entry else None
    if file is not None and not file.is_file():
        raise ValueError(f"'key' of {host}: a private key file; there is none at {file}")
    user, port = entry.get("user", access.user), entry.get("port", access.port)
    return host, HostAccess(user=user, port=port, key=file)


def _check_keys(entry: dict[Any, Any]) -> None:
    """Check that an item of HOSTS has known keys alone, each with a value of its type."""
    if unknown := sorted(map(str, entry.keys() - ENTRY_KEYS.keys())):
        raise ValueError(f"unknown key {', '.join(unknown)} in {entry!r} (known: {', '.join(ENTRY_KEYS)})")
    for key, kind in ENTRY_KEYS.items():
        if key in entry and (not isinstance(entry[key], kind) or isinstance(entry[key], bool)):
            raise ValueError(f"{key!r} of {entry!r} is no {kind.__name__}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        return f"uid{os.getuid()}"


class ClusterConf(BaseModel, frozen=True, extra="forbid", validate_default=True):
    """The settings of cluster_conf.py."""

    LAUNCHER: LauncherName = Field(
        "ssh", description="how hosts are got and reached: HOSTS by ssh, or nodes of an allocation of Slurm"
    )
    HOSTS: tuple[str, ...] = Field(
        min_length=1,
        description="names or IP addresses of the hosts, each also as user@host:port or a dict; "
        "with Slurm also a hostlist or how many",
    )
    SSH_PORT: Port = Field(22, description="where sshd listens")
    SSH_USER: UserName = Field(default_factory=_user, description="login user; by default the user who runs run.py")
    SSH_KEY: Path | None = Field(None, description="a private key file; none: the agent's and the default keys")
    KNOWN_HOSTS: Path = Field(
        Path("~/.ssh/known_hosts"), description="the hosts' keys; `run.py trust` records them here"
    )
    SSH_CONFIG: str | None = Field(
        None, description='OpenSSH client configuration; none: ~/.ssh/config and the system\'s, "": ignore both'
    )
    ALLOCATION: Literal["run", "case"] = Field(
        "run", description="whether Slurm gives the nodes of all cases at once, or those of each case when it begins"
    )
    SLURM_PARTITION: SlurmWord | None = Field(None, description="the partition to ask for nodes; none: the default one")
    SLURM_ACCOUNT: SlurmWord | None = Field(None, description="who is charged; none: the user's default account")
    SLURM_QOS: SlurmWord | None = Field(None, description="quality of service; none: the default one")
    SLURM_RESERVATION: SlurmWord | None = Field(None, description="a reservation whose nodes are used")
    SLURM_CONSTRAINT: SlurmWord | None = Field(None, description="features that nodes must have")
    SLURM_GRES: SlurmWord | None = Field(None, description="devices of each node, such as gpu:8")
    SLURM_EXCLUSIVE: bool = Field(True, description="whole nodes, which no other job shares")
    SLURM_TIME: SlurmWord | None = Field(None, description="time limit of the allocation; none: the partition's")
    SLURM_OPTIONS: tuple[SlurmOption, ...] = Field((), description="further options of sbatch")
    SLURM_SETUP: str | None = Field(
        None, min_length=1, description="a shell line before each step's command, such as module load or activate"
    )
    SLURM_CONTAINER: SlurmImage | None = Field(None, description="steps run in a container of this image, by pyxis")
    SLURM_APPTAINER: SlurmImage | None = Field(None, description="steps run in a container of this image, by apptainer")
    SLURM_DETACH: bool = Field(
        False, description="`--detach` lets the job itself run run.py, on its first node, which must see our folders"
    )
    SLURM_QUEUE_LIMIT: Seconds = Field(86400.0, description="seconds to wait for the nodes")
    MASTER_PORT: MasterPort = Field(29500, description="first port to try for torchrun's master")
    NETWORK_INTERFACE: InterfaceName = Field(
        "auto", description="the collectives' interface on every host; auto: the one that reaches the first host"
    )
    NUMA_BINDING: bool = Field(
        True, description="ranks are bound to the NUMA node of their device; without devices, equally many to each"
    )
    LINK_LIMIT: LinkSeconds = Field(120.0, description="seconds a host may be out of reach before it counts as lost")
    MAX_LOAD: Load | None = Field(
        None, description="runnable tasks per core above which a host fails the check; none: a warning above 0.5"
    )
    ALLOW_BUSY_DEVICES: bool = Field(False, description="accelerators in use cause a warning, not a failure")
    MIN_HOSTS: Count | None = Field(
        None, description="how many hosts must pass the check for the run to continue without the others; none: all"
    )

    _access: dict[str, HostAccess] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_access(cls, values: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Reduce HOSTS to the names that everything else uses; keep the other parts of its items apart."""
        cluster = handler(values)
        is_plain = LAUNCHERS[cluster.LAUNCHER].read_hosts is None
        entries = values.get("HOSTS", ()) if isinstance(values, dict) and is_plain else ()
        cluster._access.update(map(_parse_entry, entries))
        return cluster

    @field_validator("HOSTS", mode="before")
    @classmethod
    def _names(cls, entries: object, info: ValidationInfo) -> object:
        if (read := LAUNCHERS[info.data.get("LAUNCHER", "ssh")].read_hosts) is not None:
            return read(entries)
        if not isinstance(entries, list | tuple):
            return entries
        names, mistakes = [], []
        for entry in entries:
            try:
                names.append(_parse_entry(entry)[0])
            except ValueError as error:
                mistakes.append(str(error))
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return names

    @field_validator("HOSTS")
    @classmethod
    def _valid_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if mistake := repeated_hosts(hosts):
            raise ValueError(mistake)
        local = [host for host in hosts if is_local(host)]
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

    @property
    def ssh_hosts(self) -> tuple[str, ...]:
        """The hosts that are reached by ssh: all of HOSTS, or none if HOSTS is the head node alone or Slurm's."""
        return () if self.needs_allocation else tuple(name for name in self.HOSTS if not is_local(name))

    @property
    def needs_allocation(self) -> bool:
        """Whether HOSTS can be used only in an allocation."""
        return LAUNCHERS[self.LAUNCHER].read_hosts is not None

    @property
    def are_unnamed(self) -> bool:
        """Whether HOSTS says how many, and an allocation decides which."""
        return self.HOSTS[0] == UNNAMED.format(1)

    @property
    def named_hosts(self) -> tuple[str, ...]:
        """The HOSTS whose names are known."""
        return tuple(name for name in self.HOSTS if not name.startswith(UNNAMED[0]))

    @property
    def sbatch_options(self) -> tuple[str, ...]:
        """The options of sbatch that settings ask for; those of SLURM_OPTIONS last, so that they win."""
        words = {
            "partition": self.SLURM_PARTITION, "account": self.SLURM_ACCOUNT, "qos": self.SLURM_QOS,
            "reservation": self.SLURM_RESERVATION, "constraint": self.SLURM_CONSTRAINT, "gres": self.SLURM_GRES,
            "time": self.SLURM_TIME,
        }  # fmt: skip
        given = (f"--{key}={value}" for key, value in words.items() if value is not None)
        return (*given, *(("--exclusive",) if self.SLURM_EXCLUSIVE else ()), *self.SLURM_OPTIONS)

    def access(self, host: str) -> HostAccess:
        """The settings of a host's item in HOSTS besides its name."""
        return self._access.get(host, HostAccess())

    @staticmethod
    def default_user() -> str:
        """Who runs run.py."""
        return _user()

    @field_validator("SLURM_APPTAINER")
    @classmethod
    def _one_container(cls, image: str | None, info: ValidationInfo) -> str | None:
        if image is not None and info.data.get("SLURM_CONTAINER") is not None:
            raise ValueError("either SLURM_CONTAINER or this")
        return image

    @field_validator("SLURM_DETACH")
    @classmethod
    def _one_job(cls, detach: bool, info: ValidationInfo) -> bool:
        if detach and info.data.get("ALLOCATION") == "case":
            raise ValueError("False with ALLOCATION 'case': the job that would run run.py has the nodes of all cases")
        return detach

    @field_validator("SSH_CONFIG")
    @classmethod
    def _config_exists(cls, value: str | None) -> str | None:
        if not value:
            return value
        path = Path(value).expanduser()
        if not path.is_file():
            raise ValueError(f'an ssh configuration file, or "" for none; there is none at {path}')
        return str(path)

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


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
