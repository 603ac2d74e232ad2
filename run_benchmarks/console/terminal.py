"""Writes log lines in FlagPerf's form to the terminal and to run.log, a live line, and tables.

Control sequences are removed here: much of what is written came from hosts.
"""

import logging
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from common.printable import printable
from run_benchmarks.console.console import LOG, PARAMIKO, Formatter, outliving
from run_benchmarks.console.language import words

FORMAT = "%(asctime)s\t[%(levelname)s]\t[%(filename)s,%(lineno)d]%(message)s"
PIPED_WIDTH = 140  # of tables in a file or pipe
LONGEST_WHOLE = 20  # characters: a longer word of a table, a path say, may be broken
BANNER = (
    "==============================================\n"
    "            Welcome to ClusterDyno!\n"
    "   a dynamometer for clusters of accelerators\n"
    "=============================================="
)


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments that rich renders, their text made harmless: tables, the live line, whatever is printed."""
        for segment in super().render(renderable, options):
            is_text = segment.control is None
            yield segment._replace(text=printable(segment.text)) if is_text else segment

    def on_broken_pipe(self) -> None:
        """Leave it to `outliving`: rich's own would end the program here, and would keep what nobody read for later."""
        del self._buffer[:]
        raise BrokenPipeError


CONSOLE = _Console(highlight=False)
if not CONSOLE.is_terminal:
    CONSOLE = _Console(highlight=False, width=PIPED_WIDTH)


class _ConsoleHandler(logging.Handler):
    """Writes through rich's console, so that a live line below is redrawn and not torn."""

    def emit(self, record: logging.LogRecord) -> None:
        with outliving():
            if CONSOLE.is_terminal:
                CONSOLE.print(self.format(record), markup=False, highlight=False, soft_wrap=True)
            else:  # rich would replace the tabs
                print(self.format(record), flush=True)


def start_logging(level: str, file: Path | None) -> None:
    """Log to the console at `level`, and to `file` at DEBUG, including paramiko's warnings."""
    stop_logging()
    LOG.setLevel(logging.DEBUG)
    LOG.propagate = False
    console = _ConsoleHandler(level=level.upper())
    handlers: list[logging.Handler] = [console]
    if file is not None:
        to_file = logging.FileHandler(file, encoding="utf-8")
        to_file.setLevel(logging.DEBUG)
        handlers.append(to_file)
        PARAMIKO.addHandler(to_file)
        PARAMIKO.propagate = False
        PARAMIKO.setLevel(logging.WARNING)
    for handler in handlers:
        handler.setFormatter(Formatter(FORMAT))
        LOG.addHandler(handler)


def stop_logging() -> None:
    """Close and detach the handlers, as before `start_logging`."""
    LOG.propagate = PARAMIKO.propagate = True
    for handler in list(LOG.handlers):
        PARAMIKO.removeHandler(handler)
        LOG.removeHandler(handler)
        handler.close()


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, file: TextIO | None = None
) -> None:
    """Print a plain table, or each row as a list where whole words do not fit; cells are harmless text, no markup.

    Title and columns are in the terminal's language.
    """
    rows = [[*map(printable, row)] for row in rows]
    title, columns = words(title), [words(name) for name in columns]
    console = CONSOLE if file is None else _Console(file=file, highlight=False, width=160)
    widths = [
        max(min(len(part), LONGEST_WHOLE) for cell in (name, *cells) for part in (cell.split() or [""]))
        for name, *cells in zip(columns, *rows, strict=True)
    ]
    if sum(widths) + 3 * (len(widths) - 1) > console.width:
        with outliving():
            console.print(_lists(title, columns, rows, console.width), markup=False, soft_wrap=True)
        return
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*row)
    with outliving():
        console.print(table, markup=False)


def _lists(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Each row as lines "column: cell" below that of its first column, wrapped between words."""
    lines = [title] if title else []
    for row in rows:
        for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
            if cell:
                lead = f"{'  ' * bool(index)}{column}: "
                text = " ".join(printable(cell).split())
                lines += textwrap.wrap(
                    lead + text, width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
                )
    return "\n".join(lines)
