"""What an SSH connection adds: login, host keys, lost links, the bound on channels, nothing left behind."""

import contextlib
import errno
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import paramiko
import psutil
import pytest

from run_benchmarks.errors import ConnectError, DeadlineError, HostKeyError, LinkLostError, NotBegunError
from run_benchmarks.hosts import login_shell, ssh_login
from run_benchmarks.hosts.ssh import MAX_CHANNELS, SshHost
from tests.run_benchmarks.hosts.conftest import Remains
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer, free_port, make_key, open_descriptors, public_part

SECONDS = 30.0


def fingerprint_by_openssh(key: Path) -> str:
    """The SHA256 fingerprint as ssh-keygen -l prints it."""
    line = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True).stdout
    return line.split()[1]


def new_threads(before: list[threading.Thread]) -> list[str]:
    """Names of the threads that were not there before and stay; those of paramiko take a moment to leave.

    After a handshake that failed its timer, a daemon, stays for at most 15 s; it is left out.
    """

    def new() -> list[str]:
        return [t.name for t in threading.enumerate() if t not in before and not isinstance(t, threading.Timer)]

    limit = time.monotonic() + 5
    while new() and time.monotonic() < limit:
        threading.Event().wait(0.02)
    return new()


def test_an_unknown_host_key_is_refused_with_its_fingerprint(sshd: SshServer, tmp_path: Path) -> None:
    for known in (tmp_path / "none", tmp_path / "empty"):
        host = sshd.host(known_hosts=known)
        with pytest.raises(HostKeyError) as caught:
            host.connect()
        message = str(caught.value)
        assert caught.value.host == ADDRESS
        assert fingerprint_by_openssh(sshd.host_key) in message
        assert "run.py's command trust" in message
        assert f"[{ADDRESS}]:{sshd.port}" in message
        (tmp_path / "empty").touch()


def test_a_changed_host_key_is_refused_with_both_fingerprints(sshd: SshServer, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    known = tmp_path / "known_hosts"
    known.write_text(f"[{ADDRESS}]:{sshd.port} {public_part(other)}\n")
    with pytest.raises(HostKeyError, match="CHANGED") as caught:
        sshd.host(known_hosts=known).connect()
    assert fingerprint_by_openssh(sshd.host_key) in str(caught.value)
    assert fingerprint_by_openssh(other) in str(caught.value)
    assert "ssh-keygen -R" in str(caught.value)


def test_a_connection_that_is_silent_for_long_is_kept_alive(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall forgets a connection on which nothing goes during an hour's round: the server has to hear of us."""
    monkeypatch.setattr(ssh_login, "KEEPALIVE_SECONDS", 1)
    host = sshd.host()
    host.connect()
    try:

        def received() -> int:
            counts = 0
            for each in sshd.sessions():
                with contextlib.suppress(psutil.Error):
                    counts += each.io_counters().read_chars
            return counts

        def has_come(before: int, within: float) -> bool:
            limit = time.monotonic() + within
            while received() == before and time.monotonic() < limit:
                time.sleep(0.05)
            return received() != before

        limit = time.monotonic() + SECONDS
        while has_come(received(), within=0.5) and time.monotonic() < limit:  # what belongs to the login
            pass
        assert has_come(received(), within=SECONDS), "nothing came to the server"
    finally:
        host.close()


def test_a_server_of_today_is_spoken_to_in_a_cipher_that_needs_no_checksum_of_its_own(sshd: SshServer) -> None:
    host = sshd.host()
    host.connect()
    try:
        transport = host._links.open()
        assert vars(transport)["remote_cipher"] == "aes128-gcm@openssh.com", "needs least CPU"
    finally:
        host.close()


def test_a_key_recorded_for_port_22_does_not_vouch_for_another_port(sshd: SshServer, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"{ADDRESS} {public_part(sshd.host_key)}\n")
    with pytest.raises(HostKeyError, match="unknown host key"):
        sshd.host(known_hosts=known).connect()


def test_a_wrong_key_is_refused(sshd: SshServer, tmp_path: Path) -> None:
    key = make_key(tmp_path / "stranger")
    with pytest.raises(ConnectError, match="was refused") as caught:
        sshd.host(key=key).connect()
    assert str(key) in str(caught.value)
    assert not isinstance(caught.value, HostKeyError)


def test_a_file_that_is_no_key_is_named(sshd: SshServer, tmp_path: Path) -> None:
    key = tmp_path / "nonsense"
    key.write_text("this is no key\n")
    with pytest.raises(ConnectError, match=str(sshd.port)):
        sshd.host(key=key).connect()


def test_a_closed_port_is_named(sshd: SshServer) -> None:
    port = free_port()
    with pytest.raises(ConnectError, match=rf"port {port} cannot be reached: .*Connection refused"):
        sshd.host(port=port).connect()


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-mute\r\n"])
def test_a_server_that_hangs_up_is_an_error_and_leaves_nothing(
    sshd: SshServer, greeting: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_login, "BANNER_RETRIES", 2)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    threads = threading.enumerate()
    with socket.create_server((ADDRESS, 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                connection.sendall(greeting)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(ConnectError):
            sshd.host(port=server.getsockname()[1]).connect()
        with socket.create_connection(server.getsockname()):  # ends the server where it was asked once
            thread.join(5)
    assert new_threads(threads) == []


def test_a_connection_that_is_reset_as_it_is_made_is_made_again(
    sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowded host, or one whose link has just come back."""
    real = socket.socket.connect
    resets: list[bool] = []

    def reset_first(self: socket.socket, address: tuple[str, int]) -> None:
        if not resets:
            resets.append(True)
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        real(self, address)

    monkeypatch.setattr(socket.socket, "connect", reset_first)
    host = sshd.host()
    host.connect()
    host.close()
    assert resets
    resets.clear()
    monkeypatch.setattr(ssh_login, "BANNER_RETRIES", 1)
    with pytest.raises(ConnectError, match=r"the connection was dropped before its banner .*reset by peer"):
        sshd.host().connect()


def test_a_crowded_sshd_that_drops_us_before_its_banner_is_asked_again(
    sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What MaxStartups does to one of many connections at once."""
    real = paramiko.Transport.start_client
    dropped: list[bool] = []

    def drop_first(self: paramiko.Transport, *arguments: object, **options: object) -> None:
        if not dropped:
            dropped.append(True)
            raise paramiko.SSHException("Error reading SSH protocol banner")
        real(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(paramiko.Transport, "start_client", drop_first)
    host = sshd.host()
    host.connect()
    assert host.run(["echo", "in"], deadline=SECONDS).stdout == "in\n"
    host.close()


def test_a_lost_link_is_said_and_a_new_one_can_be_made(own_sshd: SshServer, remains: Remains) -> None:
    host = own_sshd.host()
    host.connect()
    errors: list[Exception] = []

    def run() -> None:
        try:
            host.run(["sleep", remains.seconds], deadline=SECONDS)
        except LinkLostError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert remains.wait(running=True)
    assert own_sshd.kill_sessions() > 0
    thread.join(10)
    assert not thread.is_alive()
    assert [error.host for error in errors if isinstance(error, LinkLostError)] == [ADDRESS]
    with pytest.raises(LinkLostError):
        host.run(["true"], deadline=SECONDS)
    host.connect()
    assert host.run(["echo", "again"], deadline=SECONDS).stdout == "again\n"
    host.close()
    for pid in remains.pids():  # a lost link leaves the command running: nothing can be known of it
        psutil.Process(pid).kill()


def test_without_a_connection_nothing_runs(sshd: SshServer) -> None:
    with pytest.raises(LinkLostError, match="connection is gone"):
        sshd.host().run(["true"], deadline=SECONDS)


def test_at_most_so_many_channels_are_open(ssh_host: SshHost, tmp_path: Path) -> None:
    """sshd closes the eleventh session of a connection; 20 threads must never see that."""
    log, failures = tmp_path / "log", []

    def work() -> None:
        try:
            ssh_host.run(["sh", "-c", f"echo + >> {log}; sleep 0.2; echo - >> {log}"], deadline=SECONDS)
        except LinkLostError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    running, most = 0, 0
    for mark in log.read_text().split():
        running += 1 if mark == "+" else -1
        most = max(most, running)
    assert 2 <= most <= MAX_CHANNELS


def test_waiting_for_a_channel_counts_against_the_deadline(ssh_host: SshHost) -> None:
    cancel = threading.Event()
    threads = [
        threading.Thread(
            target=lambda: ssh_host.run(["sleep", "30"], deadline=SECONDS, check=False, cancel=cancel), daemon=True
        )
        for _ in range(MAX_CHANNELS)
    ]
    for thread in threads:
        thread.start()
    while ssh_host._slots.acquire(blocking=False):
        ssh_host._slots.release()
        time.sleep(0.02)
    try:
        with pytest.raises(DeadlineError):
            ssh_host.run(["true"], deadline=0.3)
    finally:
        cancel.set()
        for thread in threads:
            thread.join(10)
    assert ssh_host.run(["echo", "free"], deadline=SECONDS).stdout == "free\n"


def test_what_the_log_in_shell_says_first_does_not_hide_the_group(
    ssh_host: SshHost, remains: Remains, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bash does on stderr where a locale is missing; a slow shell may say the rest after the deadline."""
    noisy = "echo 'warning: setlocale' >&2; sleep 2.3; " + login_shell.WRAPPER
    monkeypatch.setattr(login_shell, "WRAPPER", noisy)
    with pytest.raises(NotBegunError, match="did not begin a command within 2 s and wrote: warning: setlocale"):
        ssh_host.run(["sleep", remains.seconds], deadline=2.0)
    assert remains.wait(running=False) == []


def test_threads_and_descriptors_are_given_back(sshd: SshServer) -> None:
    def connect_and_close() -> None:
        host = sshd.host()
        host.connect()
        host.close()

    connect_and_close()
    threads, descriptors = threading.enumerate(), open_descriptors()
    for _ in range(50):
        connect_and_close()
    assert new_threads(threads) == []
    assert open_descriptors() <= descriptors


def test_a_refused_host_key_leaves_no_thread(sshd: SshServer, tmp_path: Path) -> None:
    threads = threading.enumerate()
    for _ in range(3):
        with pytest.raises(HostKeyError):
            sshd.host(known_hosts=tmp_path / "none").connect()
    assert new_threads(threads) == []
