"""Prints what the network cases of a run measured: nccl-tests' table, or the host x host matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from run_benchmarks.console.console import CONSOLE, outliving, print_table
from run_benchmarks.results.network import MODEL, nccl_table, network_view
from run_benchmarks.results.records import CaseRecord, RoundRecord, RunRecord

# A wider matrix fits on no terminal; report.html has it.
MATRIX_HOSTS = 12


def show_network(run: RunRecord, result_dir: Path) -> None:
    """Print the rounds of the run's network cases, each in its last attempt."""
    for case in run.cases:
        if case.model != MODEL:
            continue
        for record in _last_attempts(result_dir / case.folder):
            _show_round(case, record)


def _show_round(case: CaseRecord, record: RoundRecord) -> None:
    title = f"{case.name} round {record.round}"
    text = nccl_table(title, record)
    if text:
        with outliving():
            CONSOLE.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    view = network_view(case, record)
    if view is None or not 0 < len(view.matrix) <= MATRIX_HOSTS:
        return
    rows = [
        (host, *("" if cell is None else f"{cell.gbps:.4g}{' !' * cell.named}" for cell in cells))
        for host, cells in zip(view.hosts, view.matrix, strict=True)
    ]
    print_table(f"{title}: busbw between hosts, GB/s, median of the repeats (!: named)", ("", *view.hosts), rows)


def _last_attempts(folder: Path) -> Iterator[RoundRecord]:
    found: dict[int, RoundRecord] = {}
    for path in folder.glob("round*/round.json"):
        try:
            record = RoundRecord.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):  # its round has been reported as it was judged
            continue
        if record.round not in found or record.attempt > found[record.round].attempt:
            found[record.round] = record
    yield from (found[number] for number in sorted(found))
