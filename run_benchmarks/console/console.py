"""Writes single lines to the terminal, which may have come from hosts: control sequences are removed.

Tables and log lines, which take rich, are in terminal.py.
"""

import contextlib
import io
import logging
import sys
import threading
import traceback
from collections.abc import Iterator

from common.printable import printable
from common.unread import drop

LOG = logging.getLogger("clusterdyno")
# paramiko logs each broken connection with its traceback; our own errors hold what the user needs.
PARAMIKO = logging.getLogger("paramiko")
PARAMIKO.addHandler(logging.NullHandler())


@contextlib.contextmanager
def outliving() -> Iterator[None]:
    """Ignore the loss of the console: a closed terminal or pipe (a `tee` that a Ctrl-C ended) must not end a run."""
    try:
        yield
    except OSError:
        drop()


class Formatter(logging.Formatter):
    """Formats log records for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text, made harmless."""
        return printable(super().format(record))


def _complain_of_a_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):  # which ends a thread in order
        complain("".join(traceback.format_exception(args.exc_value)))


def guard_console() -> None:
    """Make harmless what reaches the console in other ways, since it may be a host's text, for the whole process.

    Letters that its encoding (GBK) lacks come as escapes; so do control sequences in tracebacks and warnings.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = lambda kind, error, trace: complain("".join(traceback.format_exception(error)))
    threading.excepthook = _complain_of_a_thread
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Formatter())


def complain(message: str) -> None:
    """Print a message about a user's mistake on stderr."""
    with outliving():
        print(printable(message), file=sys.stderr, flush=True)


def say(message: str) -> None:
    """Print a command's answer on stdout."""
    with outliving():
        print(printable(message), flush=True)
