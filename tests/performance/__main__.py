"""Runs the measurements and writes their tables into README.md.

    python -m tests.performance                  # all
    python -m tests.performance orchestration    # only these; the others' tables stay as they are

Every module of this package with `measure(smoke=False) -> list[Row]` is one; with `smoke` it takes seconds and its
figures mean nothing: make test does that, so that no measurement breaks unseen. Its table goes between the markers
`<!-- performance:begin -->` and `<!-- performance:end -->`, with the date and the machine it was measured on. A
measurement that fails leaves its old table and makes the exit code 1.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
import traceback
from pathlib import Path
from typing import Protocol

import tests.performance
from tests.performance.rows import Row
from tests.performance.table import describe_machine, read_blocks, render_block, replace_blocks

README = Path(__file__).resolve().parents[2] / "README.md"


class Measure(Protocol):
    """A measurement; with `smoke` at tiny sizes, whose figures mean nothing."""

    def __call__(self, *, smoke: bool = False) -> list[Row]: ...


def measurements() -> dict[str, Measure]:
    """Every module of tests.performance that has measure(), by name."""
    found: dict[str, Measure] = {}
    for module in sorted(pkgutil.iter_modules(tests.performance.__path__), key=lambda info: info.name):
        if module.name.startswith(("_", "test_")):
            continue
        measure = getattr(importlib.import_module(f"tests.performance.{module.name}"), "measure", None)
        if measure is not None:
            found[module.name] = measure
    return found


def main(names: list[str]) -> int:
    """Measure and write; returns the exit code: 0, 1 if a measurement failed, 2 for a name or README that is wrong."""
    known = measurements()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no measurement {', '.join(unknown)}; known: {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    try:
        blocks = read_blocks(README)
    except (OSError, ValueError) as error:
        print(f"{README}: {error}", file=sys.stderr)
        return 2
    chosen = names or list(known)
    machine = describe_machine()
    failed = []
    for number, name in enumerate(chosen, start=1):
        print(f"[{number}/{len(chosen)}] {name}", flush=True)
        begin = time.monotonic()
        try:
            rows = known[name]()
        except Exception:  # noqa: BLE001 - the other measurements still run; the exit code and the trace tell
            traceback.print_exc()
            failed.append(name)
            continue
        blocks[name] = render_block(name, rows, machine)
        print(f"{blocks[name]}\n\n{name}: {time.monotonic() - begin:.0f} s", flush=True)
    replace_blocks(README, {name: block for name, block in sorted(blocks.items()) if name in known})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
