"""Writes rank 0's output besides PerfLog: the table, and CSV, JSON lines and a plot beside its log."""

import csv
import io
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from common.charts.page import document, figure
from common.charts.sweep import sweep
from common.units import format_size
from protocol.perflog import write_line
from training.benchmarks.driver.workload.accelerator import accelerators, device_name, is_accelerator
from training.benchmarks.driver.workload.output_folder import log_folder
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.network.pytorch.measuring.rotation import calls_of_a_trial
from training.benchmarks.network.pytorch.summing import rows_of
from training.benchmarks.network.reporting import table
from training.benchmarks.network.slow_parts.packing import bandwidths

CSV_FILE = "network.csv"
JSONL_FILE = "network.jsonl"
PLOT_FILE = "network.html"
_TIMES = ("min", "p50", "p95", "p99", "max", "mean", "cv")
_COLUMNS = (
    "collective", "pattern", "repeat", "round", "group", "hosts", "size_bytes", "count", "dtype", "in_place",
    "world_size", "iterations", "stalled_iterations", "algbw_GBps", "busbw_GBps", "correct", "wrong_elements",
)  # fmt: skip


class Output:
    """Rank 0's outputs; the instances of other ranks do nothing.

    The folder is the chosen one, else the folder of the rank's log, to which driver.launch redirected stdout. A run by
    hand without a chosen folder leaves no files.
    """

    def __init__(self, group: ProcessGroup, chosen: Path | None = None) -> None:
        self._group = group
        self._is_first = group.placement.rank == 0
        self.folder = (chosen or log_folder(group.placement.rank)) if self._is_first else None
        self._files = None if self.folder is None else RowFiles(self.folder)
        # The out-of-place form that waits for the other one, with which it shares a line.
        self._held: Mapping[str, Any] | None = None
        self._has_forms = False

    def header(self, collective: str, convention: str, *, forms: int = 1) -> None:
        """Print the lines above the table of an operation that is measured in so many forms. All ranks call it."""
        device, placement = self._group.device, self._group.placement
        name = device_name(device) if is_accelerator(device) else self._group.backend
        local = int(os.environ["LOCAL_RANK"])
        own = table.rank_line(placement.rank, os.getpid(), platform.node(), local, _pci_address(device), name)
        ranks = self._group.gathered(own)
        self._has_forms = forms > 1
        if self._is_first:
            _show(table.header(collective, placement.world_size, name, convention, ranks))

    def step(self, value: Mapping[str, Any]) -> None:
        """Print and write the rows of one step as soon as it is measured: an early end of the run loses none."""
        if not self._is_first:
            return
        groups = value.get("groups")
        if self._files is not None and "packed" not in value:
            self._files.add(rows_of(value))
        if "packed" in value:
            rates = sorted(bandwidths(value["packed"]))
            _show(
                f"# repeat {value['repeat']}, {value['round']}, {value['size_bytes']} bytes: {len(rates)} groups, busbw"
                f" {rates[0]:.4g} to {rates[-1]:.4g} GB/s, median {rates[len(rates) // 2]:.4g}"
            )
            return
        if groups is None:
            self._show_row(value)
            if "original_timing" in value:
                self._show_original(value)
            return
        _show(f"# repeat {value['repeat']}, {value['round']}")
        for group in groups:
            _show(f"{table.row(group)}  # {group['group']}")

    def _show_original(self, value: Mapping[str, Any]) -> None:
        theirs = value["original_timing"]
        calls = calls_of_a_trial(int(value["size_bytes"]))
        self.note(
            f"{format_size(int(value['size_bytes']))} as all_reduce_bench takes it (mean of the ranks and trials of"
            f" {calls} calls in a row): algbw {theirs['algbw_GBps']:.4g} GB/s, busbw {theirs['busbw_GBps']:.4g} GB/s"
        )

    def _show_row(self, value: Mapping[str, Any]) -> None:
        held, self._held = self._held, None
        if held is not None and table.are_forms(held, value):
            _show(table.row(held, value))
            return
        if held is not None:
            _show(table.row(held))
        if self._has_forms and not value["in_place"]:
            self._held = value
        else:
            _show(table.row(value))

    def note(self, text: str) -> None:
        """Print a comment between the rows."""
        if self._is_first:
            _show(f"# {text}")

    def skipped(self, reasons: Mapping[str, str]) -> None:
        """Say why sizes are not measured, by their names."""
        for name, reason in reasons.items():
            self.note(f"{name} is skipped: {reason}")

    def finish(
        self, steps: Sequence[Mapping[str, Any]], answers: Sequence[str], *, plot: bool, advertised: float | None
    ) -> None:
        """Print the table's end and the answers; write the plot if it is wanted and there is a folder for it.

        `advertised`, in GB/s in one direction, is drawn into the plot.
        """
        if not self._is_first:
            return
        if self._held is not None:
            _show(table.row(self._held))
        results = [row for value in steps if "packed" not in value for row in rows_of(value)]
        if results:
            _show(table.footer(results))
        for answer in answers:
            _show(f"# {answer}")
        if plot and self.folder is not None and results:
            points = [(int(row["size_bytes"]), float(row["busbw_GBps"])) for row in results]
            title = f"{results[0]['collective']}, {results[0]['world_size']} ranks"
            chart = sweep(title, {"busbw": points}, advertised=advertised)
            body = "<p>Less than two sizes were measured.</p>" if chart is None else figure(chart)
            (self.folder / PLOT_FILE).write_text(document(title, body), encoding="utf-8")


class RowFiles:
    """CSV and JSON lines in `folder`, one line per measurement, each written whole when it is added.

    Times are in microseconds, in CSV in columns time_us_<statistic>.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mode: Literal["w", "a"] = "w"

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append these rows; the first call replaces files of an earlier run."""
        text = io.StringIO()
        writer, lines = csv.writer(text), []
        if self._mode == "w":
            writer.writerow([*_COLUMNS, *(f"time_us_{name}" for name in _TIMES)])
        for row in rows:
            cells = [" ".join(row[name]) if name == "hosts" and name in row else row.get(name) for name in _COLUMNS]
            writer.writerow([*cells, *(row["time_us"][name] for name in _TIMES)])
            lines.append(json.dumps(row, allow_nan=False) + "\n")
        for name, content in ((CSV_FILE, text.getvalue()), (JSONL_FILE, "".join(lines))):
            with (self._folder / name).open(self._mode, newline="", encoding="utf-8") as file:
                file.write(content)
        self._mode = "a"


def _pci_address(device: torch.device) -> str:
    """Domain, bus and device, as 0000:1b:00; empty on CPUs."""
    return accelerators(device).pci_address(device.index) if is_accelerator(device) else ""


def _show(text: str) -> None:
    """Print whole lines: in a run by hand all ranks share one stdout, and another's PerfLog must not split a row."""
    write_line(sys.stdout, text + "\n")
