"""What every host promises, held by the head node itself and by a real sshd."""

import io
import os
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from run_benchmarks.errors import CommandError, DeadlineError, HostError
from run_benchmarks.hosts.base import CANCELLED, Capture, Host
from run_benchmarks.hosts.incoming.capture import MAX_CAPTURED_BYTES
from run_benchmarks.hosts.login_shell import MarkedStderr
from run_benchmarks.hosts.transfer import push
from tests.run_benchmarks.hosts.conftest import Remains

SECONDS = 30.0
# No NUL (no argv holds one) and no lone surrogates (no UTF-8 holds them).
WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        *("", " ", "'", '"', "''", "$(id)", "`id`", "\n", "a\nb\n", "*", "?", "[a-z]*", "-n", "--", "-e", "~", "$HOME"),
        *("\\", "\\n", "%s", "!x", "a;b", "a&&b", "|", ">f", "#", "{a,b}", "ü€😀", "\t", "\r\n", "=", "A=b", "'\"'\"'"),
    ]
)


def test_a_command_tells_its_exit_code_and_both_streams(host: Host) -> None:
    done = host.run(["sh", "-c", "echo out; echo err >&2; exit 7"], deadline=SECONDS, check=False)
    assert (done.exit_code, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert done.argv[:2] == ("sh", "-c")


def test_a_failed_command_is_an_error_with_its_output(host: Host) -> None:
    with pytest.raises(CommandError) as caught:
        host.run(["sh", "-c", "echo out; echo why >&2; exit 3"], deadline=SECONDS)
    error = caught.value
    assert (error.host, error.exit_code, error.output) == (host.name, 3, "why\n")
    assert "exited 3: why" in str(error)


def test_a_program_that_is_not_there_is_exit_code_127(host: Host) -> None:
    with pytest.raises(CommandError) as caught:
        host.run(["a-program-nobody-has", "x"], deadline=SECONDS)
    assert caught.value.exit_code == 127
    assert "a-program-nobody-has" in str(caught.value)
    assert host.run(["a-program-nobody-has"], deadline=SECONDS, check=False).exit_code == 127


def test_both_streams_flow_at_once_whatever_their_size(host: Host) -> None:
    size = 8 << 20
    script = f"head -c {size} /dev/zero | tr '\\0' e >&2 & head -c {size} /dev/zero | tr '\\0' o; wait"
    done = host.run(["sh", "-c", script], deadline=SECONDS)
    assert len(done.stdout) == len(done.stderr) == size
    assert set(done.stdout) == {"o"}
    assert set(done.stderr) == {"e"}


def test_stdout_goes_to_the_callback_where_there_is_one(host: Host) -> None:
    chunks: list[bytes] = []
    done = host.run(["printf", r"\377\000x"], deadline=SECONDS, on_stdout=chunks.append)
    assert b"".join(chunks) == b"\xff\0x"
    assert done.stdout == ""


def test_stdin_is_sent_whole_and_ended(host: Host) -> None:
    data = bytes(range(256)) * (4 << 12)  # 4 MiB, more than pipes and windows hold
    received: list[bytes] = []
    host.run(["cat"], deadline=SECONDS, stdin=io.BytesIO(data), on_stdout=received.append)
    assert b"".join(received) == data


def test_a_command_without_stdin_reads_an_end_of_file(host: Host) -> None:
    assert host.run(["cat"], deadline=SECONDS).stdout == ""


def test_a_command_may_leave_its_stdin_unread(host: Host) -> None:
    assert host.run(["true"], deadline=SECONDS, stdin=io.BytesIO(b"x" * (8 << 20))).exit_code == 0


@pytest.mark.parametrize(("signal", "code"), [("KILL", 137), ("TERM", 143), ("SEGV", 139)])
def test_a_killed_command_is_no_lost_link(host: Host, signal: str, code: int) -> None:
    done = host.run(["sh", "-c", f"echo before; kill -{signal} $$"], deadline=SECONDS, check=False)
    assert (done.exit_code, done.stdout) == (code, "before\n")
    with pytest.raises(CommandError, match=f"exited {code}"):
        host.run(["sh", "-c", f"kill -{signal} $$"], deadline=SECONDS)


def test_a_command_that_kills_its_whole_group_is_no_lost_link(host: Host) -> None:
    assert host.run(["sh", "-c", "kill -KILL 0"], deadline=SECONDS, check=False).exit_code == 137
    assert host.run(["true"], deadline=SECONDS).exit_code == 0


@pytest.mark.parametrize("script", ["sleep {} | cat", "sleep {} & exit 0", "trap '' TERM; sleep {}; sleep {}"])
def test_the_deadline_bounds_and_nothing_remains(host: Host, remains: Remains, script: str) -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineError) as caught:
        host.run(["sh", "-c", "echo partial; " + script.replace("{}", remains.seconds)], deadline=1.0)
    assert time.monotonic() - started < 3.0
    assert (caught.value.host, caught.value.seconds, caught.value.output) == (host.name, 1.0, "partial\n")
    assert remains.wait(running=False) == []


def test_the_deadline_holds_while_output_floods(host: Host, remains: Remains, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Capture.__init__, "__defaults__", (1 << 20,))
    script = f"while :; do head -c 65536 /dev/zero >&2; done; : {remains.seconds}"
    with pytest.raises(DeadlineError):
        host.run(["sh", "-c", script], deadline=1.0)
    assert remains.wait(running=False) == []


def test_cancel_ends_a_command_without_an_error(host: Host, remains: Remains) -> None:
    cancel = threading.Event()

    def cancel_soon(_: bytes) -> None:
        threading.Timer(0.2, cancel.set).start()

    script = f"echo one; sleep {remains.seconds} | cat"
    done = host.run(["sh", "-c", script], deadline=SECONDS, cancel=cancel, on_stdout=cancel_soon)
    assert done.exit_code == CANCELLED
    assert remains.wait(running=False) == []


def test_cancel_ends_a_command_that_reads_nothing_of_what_is_sent_to_it(host: Host, remains: Remains) -> None:
    cancel = threading.Event()
    script = f"echo begun; sleep {remains.seconds}"
    done = host.run(
        ["sh", "-c", script],
        deadline=SECONDS,
        stdin=io.BytesIO(bytes(64 << 20)),
        cancel=cancel,
        on_stdout=lambda _: threading.Timer(0.2, cancel.set).start(),
    )
    assert done.exit_code == CANCELLED and remains.wait(running=False) == []
    assert host.run(["echo", "again"], deadline=SECONDS).stdout == "again\n"


def test_cancel_ends_a_copy_whose_data_do_not_come(host: Host, tmp_path: Path) -> None:
    cancel, folder = threading.Event(), tmp_path / "copy"
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as archive, os.fdopen(writer, "wb"):
        threading.Timer(0.3, cancel.set).start()
        with pytest.raises(HostError, match="given up"):
            push(host, archive, str(folder), deadline=5.0, cancel=cancel)
    assert not folder.exists()


def test_an_error_of_the_callback_reaches_the_caller(host: Host) -> None:
    def refuse(_: bytes) -> None:
        raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        host.run(["echo", "x"], deadline=SECONDS, on_stdout=refuse)
    assert host.run(["echo", "still there"], deadline=SECONDS).stdout == "still there\n"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORD, min_size=1, max_size=30))
def test_arguments_arrive_unchanged(host: Host, words: list[str]) -> None:
    received: list[bytes] = []
    host.run(["printf", r"%s\0", *words], deadline=SECONDS, on_stdout=received.append)
    assert b"".join(received).decode().split("\0")[:-1] == words


def test_several_threads_share_a_host(host: Host) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = host.run(["sh", "-c", f"sleep 0.1; echo {number}"], deadline=SECONDS).stdout

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"{number}\n" for number in range(12)}


def test_closing_twice_and_connecting_again_is_fine(host: Host) -> None:
    host.close()
    host.close()
    host.connect()
    host.connect()
    assert host.run(["echo", "back"], deadline=SECONDS).stdout == "back\n"
    assert host.address == "127.0.0.1"


def test_a_capture_keeps_beginning_and_end_and_says_what_it_left_out() -> None:
    capture = Capture(limit=10)
    for chunk in (b"aaaa", b"bbbb", b"cccc", b"dddd"):
        capture.add(chunk)
    assert capture.left_out == 6
    assert capture.text() == "aa\n[... 6 bytes are left out here ...]\nccccdddd"
    assert Capture().text() == "" and Capture().left_out == 0


@pytest.mark.parametrize("kind", [Capture, MarkedStderr])
def test_a_flood_takes_no_memory_in_whatever_pieces_it_comes(kind: type[Capture]) -> None:
    """A shell that never tells its process group, too: what comes before that was kept without a bound."""
    tracemalloc.start()
    try:
        byte_by_byte, large = kind(), kind()
        for _ in range(20_000):
            byte_by_byte.add(b"x")
        for _ in range(100):
            large.add(b"x" * (1 << 20))
        assert tracemalloc.get_traced_memory()[0] < 16 << 20
    finally:
        tracemalloc.stop()
    assert byte_by_byte.text() == "x" * 20_000
    assert f"{(100 << 20) - MAX_CAPTURED_BYTES} bytes are left out" in large.text()


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_process_group_is_found_in_pieces_and_taken_out(step: int) -> None:
    data = b"welcome\nmotd\n__group 1234\nthe command's own\n"
    err = MarkedStderr()
    for at in range(0, len(data), step):
        err.add(data[at : at + step])
    assert err.group == 1234 and err.text() == "welcome\nmotd\nthe command's own\n"
    late = MarkedStderr()
    late.add(b"x" * 100_000 + b"\n")
    late.add(data)
    assert late.group is None and late.text().endswith("the command's own\n")
