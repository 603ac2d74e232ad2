"""Few sessions on a connection: sshd's MaxSessions as hardened hosts have it."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from run_benchmarks.errors import ConnectError, DeadlineError, LinkLostError
from run_benchmarks.hosts import ssh_links
from run_benchmarks.hosts.ssh import MAX_CHANNELS, SshHost
from run_benchmarks.hosts.transfer import pull, push
from tests.run_benchmarks.hosts.conftest import Remains
from tests.run_benchmarks.hosts.sshd import SshServer, open_descriptors
from tests.run_benchmarks.hosts.test_ssh import new_threads
from tests.run_benchmarks.hosts.test_transfer import archive

SECONDS = 30.0
Make = Callable[..., SshServer]


def hold(host: SshHost, count: int, cancel: threading.Event) -> list[threading.Thread]:
    """So many commands that last until `cancel`, begun when this returns."""
    begun = [threading.Event() for _ in range(count)]

    def wait(event: threading.Event) -> None:
        argv = ["sh", "-c", "echo begun; exec sleep 60"]
        host.run(argv, deadline=SECONDS, on_stdout=lambda _: event.set(), cancel=cancel, check=False)

    threads = [threading.Thread(target=wait, args=(event,)) for event in begun]
    for thread in threads:
        thread.start()
    assert all(event.wait(SECONDS) for event in begun)
    return threads


@pytest.mark.parametrize("sessions", [1, 2, 4])
def test_what_lasts_holds_nothing_up(make_sshd: Make, tmp_path: Path, remains: Remains, sessions: int) -> None:
    """A follower and waits last for the whole round; commands, both directions of files and a kill go on meanwhile."""
    before, descriptors = threading.enumerate(), open_descriptors()
    host = make_sshd("few", f"MaxSessions {sessions}").host()
    host.connect()
    (remark,) = host.remarks()
    assert remark.found.startswith(f"{sessions} at once") and "MaxSessions" in remark.found
    cancel = threading.Event()
    held = hold(host, MAX_CHANNELS - 1, cancel)
    began = time.monotonic()
    push(host, archive({"file": b"content"}), str(tmp_path / "there"), deadline=SECONDS)
    assert set(pull(host, str(tmp_path / "there"), tmp_path / "here", deadline=SECONDS).files) == {"file"}
    with pytest.raises(DeadlineError):
        host.run(["sleep", remains.seconds], deadline=0.5)
    assert remains.wait(running=False, seconds=1.5) == []
    assert all(thread.is_alive() for thread in held) and time.monotonic() - began < SECONDS
    cancel.set()
    for thread in held:
        thread.join(SECONDS)
    host.close()
    assert new_threads(before) == []
    assert open_descriptors() <= descriptors + 1  # the server's own log


def test_a_limit_is_found_also_while_sshd_counts_the_session_before(
    make_sshd: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it refuses the first that the probe opens: once the check of a host said nothing of its limit."""

    def refused(*_: object) -> None:
        raise ssh_links.RefusedError

    host = make_sshd("few", "MaxSessions 1").host()
    host.connect()
    with monkeypatch.context() as patch:
        patch.setattr(ssh_links, "_open", refused)
        (remark,) = host.remarks()
    assert remark.found.startswith("1 at once")
    assert host.run(["echo", "works"], deadline=SECONDS).stdout == "works\n"
    host.close()


def test_sessions_take_turns_where_no_further_connection_is_to_be_had(
    make_sshd: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a limit of log-ins (pam_limits): learnt once, and nothing fails for it."""
    host = make_sshd("few", "MaxSessions 1").host()
    host.connect()
    asked: list[int] = []

    def refuse() -> None:
        asked.append(1)
        raise ConnectError(host.name, "too many log-ins")

    monkeypatch.setattr(host._links, "_connect", refuse)
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(host.run(["echo", str(n)], deadline=SECONDS).stdout))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(results, key=int) == [f"{n}\n" for n in range(12)]
    assert len(asked) == 1
    cancel = threading.Event()
    (held,) = hold(host, 1, cancel)
    with pytest.raises(DeadlineError):
        host.run(["true"], deadline=0.3)
    cancel.set()
    held.join(SECONDS)
    host.close()


def test_a_host_that_grants_no_session_is_said(make_sshd: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_links, "GHOST_SECONDS", 0.3)
    host = make_sshd("none", "MaxSessions 0").host()
    host.connect()
    with pytest.raises(LinkLostError, match=r"no session is granted \(MaxSessions 0"):
        host.run(["true"], deadline=SECONDS)
    host.close()


def test_sshd_as_it_comes_needs_one_connection(ssh_host: SshHost, sshd: SshServer) -> None:
    connections = len(sshd.session_pids())
    cancel = threading.Event()
    held = hold(ssh_host, MAX_CHANNELS, cancel)
    assert len(sshd.session_pids()) <= connections  # earlier tests may have left some that end
    cancel.set()
    for thread in held:
        thread.join(SECONDS)
    assert ssh_host.remarks() == ()
