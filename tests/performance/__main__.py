"""Runs the measurements and writes their tables into docs/data/performance.csv.

    python -m tests.performance                  # all
    python -m tests.performance orchestration    # only these; the others' tables stay as they are

Every module of this package with `measure(smoke=False) -> list[Row]` is one; with `smoke` it takes seconds and its
figures mean nothing: make test does that, so that no measurement breaks unseen. Its table goes into the file, which
docs/reference/performance.md shows, with the date and the machine it was measured on. A measurement that fails leaves
its old table and makes the exit code 1. Each runs in a process of its own: the peak memory of a process never falls.
"""

import importlib
import multiprocessing
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Protocol

from tests.performance.rows import Row
from tests.performance.table import Table, as_text, describe_machine, read_tables, tabulated, write_tables

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "data" / "performance.csv"


class Measure(Protocol):
    """A measurement; with `smoke` at tiny sizes, whose figures mean nothing."""

    def __call__(self, *, smoke: bool = False) -> list[Row]: ...


def measurements() -> dict[str, Measure]:
    """Every module of tests.performance that has measure(), by name."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return {
        file.stem: importlib.import_module(f"tests.performance.{file.stem}").measure
        for file in files
        if "\ndef measure(" in file.read_text(encoding="utf-8")  # others may need torch, which takes seconds to load
    }


def main(names: list[str]) -> int:
    """Measure and write; returns the exit code: 0, 1 if a measurement failed, 2 for a name or file that is wrong."""
    known = measurements()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no measurement {', '.join(unknown)}; known: {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    chosen = names or list(known)
    try:
        tables = read_tables(FILE)
    except (OSError, ValueError) as error:
        print(f"{FILE}: {error}", file=sys.stderr)
        return 2
    measured, failed = _measure(chosen, known)
    tables |= measured
    write_tables(FILE, {name: tables[name] for name in sorted(tables) if name in known})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _measure(chosen: list[str], known: dict[str, Measure]) -> tuple[dict[str, Table], list[str]]:
    """The tables by name, and the names of those that failed."""
    machine = describe_machine()
    measured: dict[str, Table] = {}
    failed = []
    for number, name in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {name}", flush=True)
        begin = time.monotonic()
        try:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own_process:
                rows = own_process.submit(known[name]).result()
        except Exception:  # noqa: BLE001 - the other measurements still run; the exit code and the trace tell
            traceback.print_exc()
            failed.append(name)
            continue
        measured[name] = tabulated(name, rows, machine)
        print(f"{as_text(measured[name])}\n{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return measured, failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
