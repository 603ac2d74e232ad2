"""Login shells as people have them: tcsh, fish, start files that print, end the session or wait."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from run_benchmarks.errors import CommandError, DeadlineError, LoginShellError, NotBegunError
from run_benchmarks.hosts.login_shell import BEGIN, MAX_NOISE_BYTES, Beginning, MarkedStderr, bounded_command
from tests.run_benchmarks.hosts.conftest import Remains
from tests.run_benchmarks.hosts.sshd import SshServer

SECONDS = 30.0
SHELLS = ("bash", "dash", "tcsh", "fish")
WORDS = [
    "a b",
    "it's",
    "!x",
    "!!",
    "$(id)`id`",
    "back\\slash\\\\",
    "new\nline",
    "ünï\U0001f600",
    "*",
    "~",
    "{a,b}",
    "",
    '"',
]
Make = Callable[..., SshServer]


def need(shell: str) -> str:
    """The shell's path; a developer's machine may lack it, the build machine may not."""
    path = shutil.which(shell)
    if path is None and os.environ.get("CI"):
        pytest.fail(f"{shell} is not installed (tests/cluster/setup.sh installs it)")
    return path or pytest.skip(f"needs {shell}")


def with_shell(make_sshd: Make, shell: str, environment: str = "") -> SshServer:
    """A server that hands commands to a shell as it does to a login shell: with -c, and bash reads ~/.bashrc."""
    return make_sshd(Path(shell).name, f'ForceCommand exec env {environment} {shell} -c "$SSH_ORIGINAL_COMMAND"')


@pytest.mark.parametrize("shell", SHELLS)
def test_every_log_in_shell_takes_every_word(make_sshd: Make, remains: Remains, shell: str) -> None:
    host = with_shell(make_sshd, need(shell)).host()
    host.connect()
    printed = host.run(["printf", "%s|", *WORDS, "z" * 50_000], deadline=SECONDS).stdout
    assert printed == "|".join([*WORDS, "z" * 50_000, ""])
    assert host.run(["sh", "-c", "cat; echo err >&2; exit 3"], deadline=SECONDS, check=False).exit_code == 3
    with pytest.raises(CommandError, match="No such file"):
        host.run(["ls", "/none/there"], deadline=SECONDS)
    with pytest.raises(DeadlineError):
        host.run(["sh", "-c", f"sleep {remains.seconds} | cat"], deadline=1.0)
    assert remains.wait(running=False) == []
    assert host.remarks() == ()
    host.close()


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=10, deadline=None)
@given(words=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40), max_size=5))
def test_any_text_arrives_unchanged(shell: str, words: list[str]) -> None:
    line = bounded_command(["printf", "%s\\n", *words], 10.0)
    assert "\n" not in line and len(max(line.split(), key=len)) < 1024
    done = subprocess.run([need(shell), "-c", line], capture_output=True, check=True, timeout=SECONDS)
    assert done.stdout == BEGIN + "".join(f"{word}\n" for word in words or [""]).encode()


def test_what_start_files_print_is_left_out_and_said(make_sshd: Make, tmp_path: Path) -> None:
    start = tmp_path / ".bashrc"
    start.write_text("echo Welcome to gpu01; printf 'no line end'; echo complaint >&2\n")
    host = with_shell(make_sshd, need("bash"), f"HOME={tmp_path}").host()
    host.connect()
    assert host.run(["echo", "in"], deadline=SECONDS).stdout == "in\n"
    chunks: list[bytes] = []
    host.run(["echo", "streamed"], deadline=SECONDS, on_stdout=chunks.append)
    assert b"".join(chunks) == b"streamed\n"
    (remark,) = host.remarks()
    assert "Welcome to gpu01" in remark.found and "~/.bashrc" in remark.action
    host.close()


@pytest.mark.parametrize(
    ("text", "code"), [("echo maintenance until noon; exit", 0), ("echo no >&2; exit 4", 4), ("exec true", 0)]
)
def test_a_start_file_that_ends_the_session_is_named(make_sshd: Make, tmp_path: Path, text: str, code: int) -> None:
    start = tmp_path / ".bashrc"
    start.write_text(f"{text}\n")
    host = with_shell(make_sshd, need("bash"), f"HOME={tmp_path}").host()
    host.connect()
    for check in (True, False):
        with pytest.raises(LoginShellError, match=f"ended with exit code {code} before .*~/.bashrc") as caught:
            host.run(["echo", "in"], deadline=SECONDS, check=check)
        assert ("maintenance until noon" in str(caught.value)) is ("maintenance" in text)
    host.close()


def test_a_start_file_that_waits_is_named(make_sshd: Make, remains: Remains, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text(f"echo pick a project; exec sleep {remains.seconds}\n")
    host = with_shell(make_sshd, need("bash"), f"HOME={tmp_path}").host()
    host.connect()
    with pytest.raises(NotBegunError, match=r"did not begin a command within 1 s and wrote: pick a project.*~/.bashrc"):
        host.run(["echo", "in"], deadline=1.0)
    host.close()


def test_an_account_that_may_run_nothing_is_named(make_sshd: Make) -> None:
    host = make_sshd("nologin", "ForceCommand echo This account is currently not available.; exit 1").host()
    host.connect()
    with pytest.raises(LoginShellError, match=r"account is currently not available.*may not run commands"):
        host.run(["true"], deadline=SECONDS)
    host.close()


@settings(max_examples=50, deadline=None)
@given(noise=st.binary(max_size=50), text=st.binary(max_size=50), cuts=st.lists(st.integers(0, 130), max_size=6))
def test_a_beginning_is_found_however_it_is_cut(noise: bytes, text: bytes, cuts: list[int]) -> None:
    assume(BEGIN not in noise + BEGIN[:-1])
    whole, found = noise + BEGIN + text, list[bytes]()
    beginning = Beginning(found.append)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(whole)], strict=True):
        beginning.add(whole[start:end])
    assert beginning.seen and b"".join(found) == text


def test_a_flood_of_noise_fills_no_memory_and_hides_no_mark() -> None:
    found: list[bytes] = []
    beginning = Beginning(found.append)
    for _ in range(500):
        beginning.add(b"x" * 7777)
    assert len(beginning.noise) <= MAX_NOISE_BYTES + len(BEGIN)
    beginning.add(BEGIN[:5])
    beginning.add(BEGIN[5:] + b"begun")
    assert b"".join(found) == b"begun"


def test_the_group_is_told_in_the_middle_of_a_line() -> None:
    """Where a start file ends none on stderr."""
    errors = MarkedStderr()
    for chunk in (b"no line end", b"__gro", b"up 4", b"2\nerror\n"):
        errors.add(chunk)
    assert errors.group == 42 and errors.text() == "no line enderror\n"
