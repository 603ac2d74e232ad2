"""Connections to a host: jump hosts, chains of them, ProxyCommand, and crowded sshds on the way."""

import contextlib
import dataclasses
import getpass
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from run_benchmarks.errors import ConnectError, HostKeyError
from run_benchmarks.hosts.connections import Connections, Passage
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.ssh import SshHost
from run_benchmarks.hosts.ssh_login import connect
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer, free_port, open_descriptors
from tests.run_benchmarks.hosts.test_ssh import new_threads

SECONDS = 30.0
Make = Callable[..., SshServer]


def behind(server: SshServer, jump: Endpoint, name: str = "inside") -> Endpoint:
    return dataclasses.replace(server.endpoint(), host=name, address=ADDRESS, jump=jump)


def jump_to(server: SshServer, name: str = "bastion", jump: Endpoint | None = None) -> Endpoint:
    """As a ProxyJump leads to: its keys are identities."""
    own = dataclasses.replace(server.endpoint(), host=name, address=ADDRESS, jump=jump)
    return dataclasses.replace(own, key=None, identities=(server.client_key,), agent=False)


def test_a_host_behind_a_chain_of_jump_hosts(make_sshd: Make) -> None:
    before, descriptors = threading.enumerate(), open_descriptors()
    inside, near, far = make_sshd("inside"), make_sshd("near"), make_sshd("far")
    host = SshHost(behind(inside, jump_to(far, "far", jump_to(near, "near"))))
    host.connect()
    assert host.run(["echo", "in"], deadline=SECONDS).stdout == "in\n"
    assert host.address == ADDRESS
    assert near.session_pids() and far.session_pids() and inside.session_pids()
    assert inside.kill_sessions() > 0
    host.reconnect()
    assert far.kill_sessions() > 0  # the way there breaks, too
    host.reconnect()
    assert host.run(["echo", "again"], deadline=SECONDS).stdout == "again\n"
    host.close()
    assert new_threads(before) == []
    assert open_descriptors() <= descriptors + 3  # the servers' logs


def test_each_host_key_on_the_way_is_checked(make_sshd: Make, tmp_path: Path) -> None:
    inside, bastion = make_sshd("inside"), make_sshd("bastion")
    unknown = dataclasses.replace(jump_to(bastion), known_hosts=tmp_path / "none")
    with pytest.raises(HostKeyError, match="inside: jump host bastion: unknown host key"):
        SshHost(behind(inside, unknown)).connect()
    with pytest.raises(HostKeyError, match="inside: unknown host key"):
        SshHost(dataclasses.replace(behind(inside, jump_to(bastion)), known_hosts=tmp_path / "none")).connect()


def test_what_is_wrong_on_the_way_is_named(make_sshd: Make, tmp_path: Path) -> None:
    inside, bastion = make_sshd("inside"), make_sshd("bastion", "AllowTcpForwarding no")
    with pytest.raises(ConnectError, match=f"inside: the jump host bastion does not connect to {ADDRESS} port"):
        SshHost(behind(inside, jump_to(bastion))).connect()
    stranger = dataclasses.replace(jump_to(bastion), identities=(tmp_path / "nobody",))
    with pytest.raises(ConnectError, match=r"inside: jump host bastion: login .* was refused .*nobody is not there"):
        SshHost(behind(inside, stranger)).connect()
    with pytest.raises(ConnectError, match=r"inside: jump host bastion: port .* cannot be reached"):
        SshHost(behind(inside, dataclasses.replace(jump_to(bastion), port=free_port()))).connect()


def test_many_hosts_share_one_connection_to_a_crowded_jump_host(make_sshd: Make) -> None:
    """64 hosts at once through sshds that turn connections away at random from the tenth on (MaxStartups)."""
    crowded = "MaxStartups 10:30:60"
    inside, bastion = make_sshd("inside", crowded), make_sshd("bastion", crowded)
    ways = Connections(connect)
    hosts = {f"n{n}": SshHost(behind(inside, jump_to(bastion), f"n{n}"), ways) for n in range(64)}
    try:
        for_each(hosts, lambda host: host.connect()).raise_first()
        sessions = len(bastion.session_pids())
        assert sessions <= 2  # one connection, with or without a process of its own for its rights
        answers = for_each(hosts, lambda host: host.run(["echo", host.name], deadline=SECONDS).stdout).raise_first()
        assert answers == {name: f"{name}\n" for name in hosts}
    finally:
        for_each(hosts, lambda host: host.close())
    limit = time.monotonic() + 5
    while bastion.session_pids() and time.monotonic() < limit:
        time.sleep(0.05)
    assert bastion.session_pids() == []


def test_a_silent_host_behind_a_jump_host_takes_no_other_with_it(
    make_sshd: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jump host says nothing while it waits for the other: that is no sign that it is lost itself."""
    monkeypatch.setattr("run_benchmarks.hosts.connections.ALIVE_SECONDS", 0.5)
    monkeypatch.setattr("run_benchmarks.hosts.ssh_login.CONNECT_SECONDS", 1.0)
    inside, bastion = make_sshd("inside"), make_sshd("bastion")
    ways = Connections(connect)
    good = SshHost(behind(inside, jump_to(bastion), "good"), ways)
    good.connect()
    with contextlib.ExitStack() as stack, socket.create_server((ADDRESS, 0), backlog=0) as full:
        port = full.getsockname()[1]
        for _ in range(4):  # its queue is full: further connections are not answered
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((ADDRESS, port))
        silent = dataclasses.replace(behind(inside, jump_to(bastion), "silent"), port=port)
        with pytest.raises(
            ConnectError, match=rf"silent: through the jump host bastion to {ADDRESS} port {port}: Time"
        ):
            SshHost(silent, ways).connect()
    assert good.run(["echo", "there"], deadline=SECONDS).stdout == "there\n"
    good.close()


def test_a_proxy_command(own_sshd: SshServer) -> None:
    before, descriptors = threading.enumerate(), open_descriptors()
    options = f"-o UserKnownHostsFile={own_sshd.known_hosts} -o IdentitiesOnly=yes -F none"
    login = f"{getpass.getuser()}@{ADDRESS}"
    proxy = f"ssh -q -i {own_sshd.client_key} {options} -p {own_sshd.port} -W {ADDRESS}:{own_sshd.port} {login}"
    host = SshHost(dataclasses.replace(own_sshd.endpoint(), proxy_command=proxy))
    host.connect()
    assert host.run(["echo", "in"], deadline=SECONDS).stdout == "in\n"
    assert host.address == ADDRESS
    host.close()
    assert new_threads(before) == []
    assert open_descriptors() <= descriptors


@pytest.mark.parametrize(
    "command", ["echo no way to %h >&2; exit 1", "/none/there", "sh -c 'echo broken >&2; sleep 60'"]
)
def test_what_a_proxy_command_says_is_told(sshd: SshServer, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_benchmarks.hosts.ssh_login.CONNECT_SECONDS", 2.0)
    monkeypatch.setattr("run_benchmarks.hosts.connections.PROXY_END_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(ConnectError, match=r"its ProxyCommand wrote: .*(no way to|not found|broken)"):
        SshHost(dataclasses.replace(sshd.endpoint(), proxy_command=command)).connect()
    assert time.monotonic() - began < SECONDS


class LostChannel(paramiko.Channel):
    """A channel whose connection is gone: paramiko raises EOFError where it would tell the other end."""

    def close(self) -> None:
        raise EOFError


def test_closing_a_connection_whose_way_is_lost_is_no_error() -> None:
    """In the thread of the connection it carries, the error would leave those who wait for that waiting."""
    Passage(LostChannel(0)).close()


def test_a_connection_ends_when_the_way_to_it_is_lost(make_sshd: Make) -> None:
    inside, bastion = make_sshd("inside"), make_sshd("bastion")
    ways = Connections(connect)
    transport = connect(behind(inside, jump_to(bastion)), ways)
    ways.enter()
    assert bastion.kill_sessions() > 0
    transport.join(SECONDS)
    assert not transport.is_alive() and not transport.is_active()
    transport.close()
    ways.leave()
