"""Calls a command of run.py in the test's own process."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from common.command_line import WRONG_INPUT
from run_benchmarks.commands.cli import PROGRAM
from run_benchmarks.errors import ClusterDynoError


class Answer(NamedTuple):
    """What a command printed, and how it ended: with an exit code, or 1 and an exception that `main` would report."""

    exit_code: int
    stdout: str
    stderr: str
    exception: Exception | None = None

    @property
    def output(self) -> str:
        """All that was printed."""
        return self.stdout + self.stderr

    @property
    def complaint(self) -> str:
        """What `main` reports of its failure."""
        return self.stderr if self.exception is None else str(self.exception)

    def checked(self) -> Answer:
        """The answer of a command that found no mistake in its input, and has no exception."""
        if self.exception is not None:
            raise self.exception
        assert self.exit_code != WRONG_INPUT, self.stderr
        return self


class _Stream(io.TextIOWrapper):
    buffer: io.BytesIO

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)


def call(*words: str) -> Answer:
    """Run a command; its exception is part of the answer."""
    out, err = _Stream(), _Stream()
    code, raised = 1, None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = PROGRAM.main(words)
        except SystemExit as end:  # argparse's own --help
            code = int(end.code or 0)
        except ClusterDynoError as error:
            raised = error
    return Answer(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode(), raised)
