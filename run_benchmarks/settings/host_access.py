"""Resolves the way to each host: from HOSTS, then cluster_conf.py, then ~/.ssh/config, then defaults."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from common.shortening import few
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.hosts.endpoint import SSH_PORT, Endpoint
from run_benchmarks.settings.cluster import ClusterConf, parse_host

if TYPE_CHECKING:  # paramiko takes long to import: this machine alone is reached without it
    from run_benchmarks.hosts.ssh_config import HostOptions, SshConfig, SshConfigError

GLOBAL_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
MAX_JUMPS = 8


def endpoint_of(name: str, cluster: ClusterConf) -> Endpoint:
    """The way to one host of HOSTS.

    Raises:
        InputProblems: an ssh configuration file is unusable.
    """
    from run_benchmarks.hosts.ssh_config import SshConfigError

    config = _config(cluster.SSH_CONFIG)
    own, given = cluster.access(name), cluster.model_fields_set
    user = own.user or (cluster.SSH_USER if "SSH_USER" in given else None)
    port = own.port or (cluster.SSH_PORT if "SSH_PORT" in given else None)
    try:
        options = config.lookup(name, user, port)
        jump = _jump(options.jumps, config, cluster, (name,))
    except SshConfigError as error:
        raise _config_error(error) from error
    user = user or options.user or cluster.SSH_USER
    made = _endpoint(name, port, user, options, cluster)
    return replace(made, key=own.key or cluster.SSH_KEY, jump=jump, proxy_command=options.proxy_command)


def _endpoint(host: str, port: int | None, user: str, options: HostOptions, cluster: ClusterConf) -> Endpoint:
    """A host by its options alone; a given port takes precedence over theirs."""
    known_hosts, more = _known_hosts(options, cluster)
    return Endpoint(
        host=host,
        port=port or options.port or SSH_PORT,
        user=user,
        key=None,
        known_hosts=known_hosts,
        address=options.address,
        host_key_alias=options.host_key_alias,
        more_known_hosts=more,
        identities=options.identities,
        certificates=options.certificates,
        agent=options.agent and not options.identities_only,
    )


def deploy_path(cluster: ClusterConf) -> str:
    """The default folder of our files on the hosts: .clusterdyno in the home of the user who logs in there."""
    return f"{home_of(cluster.HOSTS[0], cluster)}/.clusterdyno"


@dataclass(frozen=True, kw_only=True)
class WayIn:
    """How a person tries what failed: its name, what is expected, and the command."""

    subject: str
    expected: str
    command: str


def way_in(name: str, cluster: ClusterConf) -> WayIn:
    """The way to a host as a person tries it.

    Raises:
        InputProblems: an ssh configuration file is unusable.
    """
    if cluster.needs_allocation:
        return WayIn(subject="step", expected="a step that begins", command=f"srun --nodelist={name} true")
    return WayIn(subject="ssh", expected="a login without a password", command=login_command(name, cluster))


def login_command(name: str, cluster: ClusterConf) -> str:
    """The OpenSSH command that logs in as a run does.

    Raises:
        InputProblems: an ssh configuration file is unusable.
    """
    endpoint = endpoint_of(name, cluster)
    config = () if cluster.SSH_CONFIG is None else ("-F", cluster.SSH_CONFIG or "none")
    key = () if endpoint.key is None else ("-i", str(endpoint.key))
    return shlex.join(["ssh", *config, *key, "-p", str(endpoint.port), f"{endpoint.user}@{name}"])


def problems_and_notes(cluster: ClusterConf) -> tuple[list[Problem], list[str]]:
    """Settings that make a host unreachable, and options of an ssh configuration that are not implemented here."""
    problems: dict[str, Problem] = {}
    unused: dict[str, list[str]] = {}
    for name in cluster.ssh_hosts:
        try:
            way = endpoint_of(name, cluster).way
        except InputProblems as error:
            problems |= {str(problem): problem for problem in error.problems}
            continue
        for endpoint in way:
            for text in _config(cluster.SSH_CONFIG).lookup(endpoint.host).unused:
                unused.setdefault(text, []).append(endpoint.host)
    files = " and ".join(map(str, _config(cluster.SSH_CONFIG).files)) if unused else ""
    notes = [f"{files}: `{text}` is not followed here ({_some(hosts)})" for text, hosts in unused.items()]
    return list(problems.values()), notes


def users_of(cluster: ClusterConf) -> dict[str, str]:
    """The users that log in, each with its first host.

    Raises:
        InputProblems: an ssh configuration file is unusable.
    """
    users: dict[str, str] = {}
    for name in cluster.ssh_hosts:
        users.setdefault(endpoint_of(name, cluster).user, name)
    return users


def home_of(name: str, cluster: ClusterConf) -> str:
    """The home of the user that logs in on a host, by the convention for its name.

    Raises:
        InputProblems: an ssh configuration file is unusable.
    """
    if name not in cluster.ssh_hosts:
        return str(Path.home())
    user = endpoint_of(name, cluster).user
    return "/root" if user == "root" else f"/home/{user}"


def _some(hosts: Iterable[str]) -> str:
    return few(list(dict.fromkeys(hosts)), 3)


@functools.lru_cache(maxsize=4)
def _read(files: tuple[Path, ...], _states: tuple[tuple[int, int], ...]) -> SshConfig:
    from run_benchmarks.hosts.ssh_config import SshConfig

    return SshConfig(files)


def _config(setting: str | None) -> SshConfig:
    """The files of a SSH_CONFIG: None means the files that ssh reads, "" none."""
    from run_benchmarks.hosts.ssh_config import SshConfigError, default_files

    files = default_files() if setting is None else ((Path(setting),) if setting else ())
    try:
        return _read(files, tuple((state.st_ino, state.st_mtime_ns) for state in (file.stat() for file in files)))
    except SshConfigError as error:
        raise _config_error(error) from error
    except OSError as error:
        raise InputProblems([Problem(str(error.filename), "file", "", f"cannot be read: {error.strerror}")]) from error


def _config_error(error: SshConfigError) -> InputProblems:
    return InputProblems([Problem(str(error.file), error.place, error.value, str(error))])


def _known_hosts(options: HostOptions, cluster: ClusterConf) -> tuple[Path, tuple[Path, ...]]:
    """The file that `run.py trust` writes, and the others; a KNOWN_HOSTS that is set is the only one."""
    if "KNOWN_HOSTS" in cluster.model_fields_set:
        return cluster.KNOWN_HOSTS, ()
    own = options.user_known_hosts or (cluster.KNOWN_HOSTS,)
    everybody = options.global_known_hosts
    if everybody is None:
        everybody = tuple(path for path in GLOBAL_KNOWN_HOSTS if path.is_file())
    return own[0], (*own[1:], *everybody)


def _jump(jumps: str, config: SshConfig, cluster: ClusterConf, seen: tuple[str, ...]) -> Endpoint | None:
    """The last jump host of a ProxyJump, reached through those before it; the first may have one of its own."""
    from run_benchmarks.hosts.ssh_config import SshConfigError

    before: Endpoint | None = None
    for index, text in enumerate(filter(None, map(str.strip, jumps.split(",")))):
        try:
            host, access = parse_host(re.sub("^ssh://", "", text))
        except ValueError as error:
            raise SshConfigError(config.files[0], "ProxyJump", jumps, str(error)) from error
        if len(seen) > MAX_JUMPS or host in seen:
            allowed = f"a way that ends, not {' > '.join((*seen, host))}"
            raise SshConfigError(config.files[0], "ProxyJump", jumps, allowed)
        options = config.lookup(host, access.user, access.port)
        if index == 0:
            before = _jump(options.jumps, config, cluster, (*seen, host))
        user = access.user or options.user or cluster.default_user()
        before = replace(
            _endpoint(host, access.port, user, options, cluster),
            identities=options.identities or ((cluster.SSH_KEY,) if cluster.SSH_KEY else ()),
            jump=before,
            proxy_command=options.proxy_command if before is None else "",
        )
    return before
