"""Builds commands that work in any login shell: sshd hands them to the account's shell, which may be tcsh or fish.

The shell sees plain words only; the command itself travels in base64 and is read by the host's `sh`. It begins with a
mark on stdout: output before it came from the shell's start files, and without a mark these ended the shell.
"""

import base64
import math
import re
import shlex
from collections.abc import Callable, Sequence

from run_benchmarks.hosts.base import Capture

# After a deadline, before a host kills the command by itself; a host that is told to does so within a second.
OWN_CLOCK_SECONDS = 2
WORD_CHARACTERS = 800  # older csh accept no word of more than 1024
DECODE = """sh -c 'eval "$(printf "%s\\n" "$@" | base64 -d)"' sh"""
BEGIN = b"__clusterdyno_begin__\n"
MAX_NOISE_BYTES, MAX_MARK_BYTES = 4096, 32
MAX_STDERR_BYTES = 1 << 16  # limit of a login shell's stderr before its mark; beyond it no mark is expected
# `timeout` leads the process group and kills it. The shell under it makes a killed command show as 128+n; paramiko
# would show -1, like a lost link.
WRAPPER = f'echo {BEGIN.decode().strip()}; echo "__group $PPID" >&2; '
GROUP_MARK = re.compile(rb"__group (\d{1,10})\n")
START_FILES = "~/.bashrc, ~/.zshenv, ~/.cshrc, ~/.tcshrc or ~/.config/fish/config.fish"


def bounded_command(argv: Sequence[str], deadline: float) -> str:
    """The login shell's line that runs `argv`, reports its process group, and ends by the host after `deadline` s."""
    seconds = math.ceil(deadline) + OWN_CLOCK_SECONDS  # an integer: busybox' timeout accepts no other
    return f"exec timeout -s KILL {seconds} {DECODE} {_words(f'{WRAPPER}{shlex.join(argv)}; exit $?')}"


def plain_command(script: str) -> str:
    """The line for a login shell that runs a script of `sh` after the mark."""
    return f"exec {DECODE} {_words(f'echo {BEGIN.decode().strip()}; {script}')}"


def _words(script: str) -> str:
    text = base64.b64encode(script.encode("utf-8", errors="surrogateescape")).decode("ascii")
    return " ".join(text[start : start + WORD_CHARACTERS] for start in range(0, len(text), WORD_CHARACTERS))


class Beginning:
    """Passes on the output after the mark; the output before it is `noise`."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink, self._head = sink, b""
        self.seen = False

    def add(self, chunk: bytes) -> None:
        """Take a piece of stdout, cut anywhere."""
        if self.seen:
            self._sink(chunk)
            return
        self._head += chunk
        before, mark, after = self._head.partition(BEGIN)
        if mark:
            self.seen, self._head = True, before
            if after:
                self._sink(after)
        elif len(self._head) > MAX_NOISE_BYTES + len(BEGIN):  # its beginning is reported, its end may be half a mark
            self._head = self._head[:MAX_NOISE_BYTES] + self._head[-len(BEGIN) :]

    @property
    def noise(self) -> str:
        """The output before the mark, or all of it without a mark; shortened in the middle if it is long."""
        return self._head.decode("utf-8", errors="replace").strip()


def ended_early(exit_code: int, noise: str, errors: str) -> str:
    """The message for a command whose channel ended without the mark."""
    wrote = "; ".join(filter(None, (noise.strip()[-500:], errors.strip()[-500:]))) or "nothing"
    return (
        f"the login shell ended with exit code {exit_code} before it began the command; it wrote: {wrote}. A start "
        f"file of it ({START_FILES}) ends the session of a command (guard it: leave alone what is not interactive), or "
        f"the account may not run commands, or the host lacks sh, timeout or base64"
    )


def began_late(seconds: float, noise: str, errors: str) -> str:
    """The message for a command that had not begun at its deadline, though its channel was open."""
    wrote = "; ".join(filter(None, (noise.strip()[-500:], errors.strip()[-500:])))
    return (
        f"the login shell did not begin a command within {seconds:g} s{f' and wrote: {wrote}' if wrote else ''}. A "
        f"start file of it ({START_FILES}) waits or takes long (guard it: leave alone what is not interactive), or "
        f"the host or its home folder does not answer"
    )


class MarkedStderr(Capture):
    """stderr of a wrapped command, without the line that reports its process group."""

    def __init__(self) -> None:
        super().__init__()
        self.group: int | None = None
        self._before: bytearray | None = bytearray()  # until the mark is found or given up

    def add(self, chunk: bytes) -> None:
        if self._before is None:
            super().add(chunk)
            return
        looked_at = max(0, len(self._before) - MAX_MARK_BYTES)
        self._before += chunk
        mark = GROUP_MARK.search(self._before, looked_at)
        if mark is not None:
            self.group = int(mark[1])
            del self._before[mark.start() : mark.end()]
        if mark is not None or len(self._before) > MAX_STDERR_BYTES:
            self._flush()

    def _flush(self) -> None:
        before, self._before = self._before, None
        super().add(bytes(before or b""))

    def text(self) -> str:
        if self._before is not None:
            self._flush()
        return super().text()
