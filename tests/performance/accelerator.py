"""Measures the rows of docs/reference/measurements.md that fit the accelerator of this machine, the worthiest first.

    make accelerator                       # rows as long as 9 minutes allow; the next call goes on
    make accelerator ARGS="--minutes 30"

Each row is one command with its own log. What it measured is written at once: into OUT/<device>/state.json, into the
table of that folder and, on an accelerator, into docs/data/measurements. A row that failed is tried again after all
others. On a machine without accelerators the rows run at tiny sizes with vendor cpu: a rehearsal.
"""

import argparse
import contextlib
import csv
import datetime
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

import vendors
from common.whole_files import write_text
from tests.performance.accelerator_remarks import figures, remarks
from tests.performance.accelerator_rows import ROWS, Case, Device, Row, cases_of, missing_kernel, missing_library
from training.benchmarks.driver.workload.accelerator import accelerators, device_name, use, vendor_here
from vendors.base import ProbeUnavailable

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "docs" / "data" / "measurements"
LONGEST_S = 540
"""Of one row: less than the ten minutes after which a borrowed machine ends a command."""
OPEN = "open"


def device_here(vendor: str) -> Device:
    """The device of this machine: the vendor's first, or for vendor cpu the processors."""
    if vendor == "cpu":
        cpu = torch.device("cpu")
        return Device(
            vendor=vendor,
            name=device_name(cpu),
            memory_bytes=psutil.virtual_memory().total,
            count=psutil.cpu_count() or 1,
            driver="",
        )
    use(vendor)
    first = torch.device(vendors.load(vendor).device_type, 0)
    asked = accelerators(first)
    driver = ""
    with contextlib.suppress(ProbeUnavailable):
        probe = vendors.load(vendor).open_probe()
        driver = str(probe.describe().get("driver", ""))
        probe.close()
    return Device(
        vendor=vendor,
        name=device_name(first),
        memory_bytes=asked.total_memory(first),
        count=asked.count(),
        driver=driver,
    )


def commands_of(row: Row, device: Device, cases: list[Case], folder: Path) -> list[list[str]]:
    """The argument lists of a row's commands; a row with a file runs its cases, which are written into the folder."""
    if not row.file:
        written = row.on_cpu if device.is_rehearsal else [each for each in row.commands if not missing_kernel(each)]
        words = {"out": shlex.quote(str(folder)), "vendor": device.vendor}
        return [[sys.executable, *shlex.split(each.format(**words))[1:]] for each in written]
    conf = {
        "VENDOR": device.vendor,
        "RUNTIME": "process",
        "PYTHON": sys.executable,
        "CASES": [case.name for case in cases],
        "FLAGPERF_PATH_HOST": str(folder / "deploy"),
        "FLAGPERF_LOG_PATH_HOST": str(folder / "runs"),
        **{case.name: dict(case.settings) for case in cases},
    }
    write_text(folder / "test_conf.py", "".join(f"{key} = {value!r}\n" for key, value in conf.items()))
    run_py = str(ROOT / "run_benchmarks" / "run.py")
    return [[sys.executable, run_py, "--test-conf", str(folder / "test_conf.py")]]


def run_row(row: Row, device: Device, folder: Path) -> dict[str, Any]:
    """Run a row's commands one after another; its entry of the state. What an interrupted call left of it goes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written = cases_of(row, device) if row.file else []
    cases = [case for case in written if not missing_library(case)]
    begin = time.monotonic()
    problem = ""
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        for argv in commands_of(row, device, cases, folder):
            left = LONGEST_S - (time.monotonic() - begin)
            problem = _ended(argv, log, left)
            if problem:
                break
    measured = figures(row, cases, folder)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device.name,
        "driver": device.driver,
        "seconds": round(time.monotonic() - begin, 1),
        "problem": problem,
        "figures": measured,
        "remarks": [
            *remarks(cases, measured, device),
            *(f"{case.name}: {missing_library(case)}" for case in written if missing_library(case)),
            *dict.fromkeys(filter(None, map(missing_kernel, row.commands))),
        ],
    }


def _ended(argv: list[str], log: io.TextIOWrapper, seconds: float) -> str:
    """Why the command did not succeed; empty if it did."""
    with subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            code = process.wait(timeout=max(seconds, 1))
        except subprocess.TimeoutExpired:
            return f"was ended after {LONGEST_S} s"
        finally:
            if process.poll() is None:
                _end(process)
    return f"ended with {code}: see {log.name}" if code else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and its children: run.py collects what it has at SIGINT."""
    for how, wait in ((signal.SIGINT, 30), (signal.SIGKILL, 30)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=wait)
            return


def in_order(state: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """The rows that are to be measured: those without a result by their worth, then those that failed."""
    new = [row for row in ROWS if row.name not in state]
    return [*new, *(row for row in ROWS if row.name in state and state[row.name]["problem"])]


def filled(table: str, entries: Mapping[str, Mapping[str, Any]], device: Device) -> str:
    """The text of a table of docs/data/measurements with the results of its rows in place of what is open.

    A line whose device is another keeps its text.
    """
    lines = list(csv.reader(io.StringIO(table, newline="")))
    header = lines[0]
    what, command, on, date, result = range(5)
    for row, entry in ((row, entries[row.name]) for row in ROWS if row.name in entries):
        for line in lines[1:]:
            is_meant = row.marks in line[command] or row.marks in line[what]
            fits = line[on] == "any" or device.hardware in re.split(r"\W+", line[on]) or device.is_rehearsal
            if len(line) == len(header) and is_meant and fits and line[result].startswith(OPEN):
                line[date], line[result] = entry["date"], as_result(entry)
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def as_result(entry: Mapping[str, Any]) -> str:
    """An entry as the table has it: the device, its driver, the figures, and what disagrees."""
    if entry["problem"]:
        return f"{OPEN}: {entry['device']}: {entry['problem'].partition(': see')[0]}"
    driver = f", driver {entry['driver']}" if entry["driver"] else ""
    told = ", ".join(f"{name} {value:.4g}" for name, value in entry["figures"].items())
    return "; ".join([f"{entry['device']}{driver}: {told or 'done'}", *entry["remarks"]])


def write_results(state: Mapping[str, Mapping[str, Any]], device: Device, folder: Path) -> None:
    """Write the state and the tables: of the folder, and on an accelerator those of the documentation."""
    write_text(folder / "state.json", json.dumps(state, indent=1) + "\n")
    for name in sorted({row.table for row in ROWS}):
        entries = {row.name: state[row.name] for row in ROWS if row.table == name and row.name in state}
        text = filled((TABLES / name).read_text(encoding="utf-8"), entries, device)
        for target in (folder / name,) if device.is_rehearsal else (folder / name, TABLES / name):
            write_text(target, text)


def measure_rows(device: Device, folder: Path, minutes: float) -> int:
    """Measure rows until the minutes are used; 1 if one of them failed."""
    begin = time.monotonic()
    file = folder / "state.json"
    state: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    print(f"{device.name}, vendor {device.vendor}, driver {device.driver or 'none'}: results in {folder}", flush=True)
    failed = False
    for row, left in _with_time(in_order(state), device, minutes * 60, begin):
        print(f"{row.name}: begins, {left / 60:.0f} of {minutes:g} minutes are left", flush=True)
        try:
            entry = run_row(row, device, folder / row.name)
        except ValueError as error:
            print(f"{row.name}: left out: {error}", flush=True)
            continue
        state[row.name] = entry
        failed |= bool(entry["problem"])
        write_results(state, device, folder)
        print(f"{row.name}: {entry['seconds']:g} s: {as_result(entry)}", flush=True)
    return int(failed)


def _with_time(rows: list[Row], device: Device, seconds: float, begin: float) -> Iterator[tuple[Row, float]]:
    """Rows while there is time for them, with the seconds that are left; the first at any rate."""
    for number, row in enumerate(rows):
        left = seconds - (time.monotonic() - begin)
        takes = 1.0 if device.is_rehearsal else row.minutes * 60
        if number and left < takes:
            print(f"the next call goes on with {row.name}", flush=True)
            return
        yield row, left
    print("no row is left", flush=True)


def main(argv: list[str]) -> int:
    """Measure what fits; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make accelerator", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no row that would end later (default: 9)")
    parser.add_argument("--out", type=Path, default=ROOT / "result" / "accelerator", help="folder of the results")
    parser.add_argument("--vendor", choices=vendors.available(), help="default: whose devices are here")
    options = parser.parse_args(argv)
    device = device_here(options.vendor or vendor_here())
    folder = options.out.absolute() / re.sub(r"\W+", "_", device.name).strip("_")
    folder.mkdir(parents=True, exist_ok=True)
    return measure_rows(device, folder, options.minutes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
