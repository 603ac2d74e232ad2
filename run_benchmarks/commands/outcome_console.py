"""Prints each benchmark's tables of its rounds on the console at the end of a run."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from common.printable import printable
from protocol.outcome import Block, Picture, Table
from run_benchmarks.console.console import outliving
from run_benchmarks.console.terminal import CONSOLE, print_table
from run_benchmarks.results.outcomes import console_blocks
from run_benchmarks.results.records import RoundRecord, RunRecord, load_record
from run_benchmarks.results.summary import show


def show_outcomes(run: RunRecord, result_dir: Path) -> None:
    """Print the tables of each case's rounds, each for its last attempt."""
    for case in run.cases:
        for record in _last_attempts(result_dir / case.folder):
            for block in console_blocks(case, record):
                _show(block)


def _show(block: Block) -> None:
    """Print a block; control characters from hosts become question marks."""
    if isinstance(block, Table):
        rows = [tuple(printable(show(cell.value)) for cell in row) for row in block.rows]
        print_table(printable(block.title), tuple(map(printable, block.columns)), rows)
    elif not isinstance(block, Picture):
        with outliving():
            CONSOLE.print(printable(block.text), markup=False, highlight=False, soft_wrap=True)


def _last_attempts(folder: Path) -> Iterator[RoundRecord]:
    found: dict[int, RoundRecord] = {}
    for path in folder.glob("round*/round.json"):
        try:
            record = load_record(path, RoundRecord)
        except (OSError, ValidationError):  # its round was already reported when it was judged
            continue
        if record.round not in found or record.attempt > found[record.round].attempt:
            found[record.round] = record
    yield from (found[number] for number in sorted(found))
