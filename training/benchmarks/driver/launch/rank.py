"""Runs one rank: torchrun starts this module, which runs the benchmark's entry module.

    python -m training.benchmarks.driver.launch.rank --log_dir D -- <module> <arguments>

It sends the rank's output to D/rank<global rank>.out.log, makes crashes traceable, binds it (numa_binding).
"""

import argparse
import ctypes
import faulthandler
import itertools
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path

import vendors
from common.garbage import load_modules
from common.whole_files import write_text
from protocol import pulse
from training.benchmarks.driver.launch import numa_binding, rank_watch
from vendors import extern

# The folder of the rank's log, for further files of the workload.
LOG_FOLDER_ENV = "CLUSTERDYNO_LOG_FOLDER"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def log_name(rank: int) -> str:
    """File name of a rank's log."""
    return f"rank{rank}.out.log"


def main() -> None:
    """Entry point; returns or fails as the module does."""
    parser = argparse.ArgumentParser(prog="driver.launch.rank", allow_abbrev=False)
    parser.add_argument("--log_dir", type=Path, required=True)
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    _end_with_launcher()
    os.environ[LOG_FOLDER_ENV] = str(options.log_dir)
    _redirect(options.log_dir / log_name(int(os.environ["RANK"])))
    _bind(options.arguments)
    pulse.begin(int(os.environ["RANK"]))
    _run(options.module, options.arguments)


def _end_with_launcher() -> None:
    """Make the kernel kill this rank when its launcher dies, even by SIGKILL: a rank must not outlive the round."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _launch(arguments: list[str]) -> None:
    """Call the vendor's own launch of this case (vendors/extern.py), if there is one, before torch is imported."""
    given = dict(itertools.pairwise(arguments))
    try:
        case = json.loads(Path(given["--case_file"]).read_bytes())
        folder = vendors.case_dir(given["--vendor"], case["model"], case["framework"])
    except (KeyError, TypeError, OSError, ValueError):
        return  # a run by hand, or the benchmark says what is wrong
    launch = extern.find(folder).function(extern.LAUNCH)
    if launch is not None:
        launch(os.environ, int(os.environ["LOCAL_RANK"]))


def _bind(arguments: list[str]) -> None:
    """Bind this rank, and all that it starts, to its NUMA node, and say so in its log."""
    given = dict(itertools.pairwise(arguments))
    told = numa_binding.bind(os.environ, given.get("--vendor"))
    if told is not None:
        print(f"launch: rank {os.environ['RANK']} is {told}", flush=True)


def _redirect(path: Path) -> None:
    """Append stdout and stderr, also of native libraries, to `path`; SIGUSR1 writes the stacks of all threads there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def _run(module: str, arguments: list[str]) -> None:
    sys.argv = [module, *arguments]
    load_modules()
    try:
        _launch(arguments)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        pulse.leave(pulse.exit_code_of(error))
        if error.code not in (None, 0):
            _record(_reason(error), error)
        raise
    except BaseException as error:
        pulse.leave(pulse.exit_code_of(error))
        _record(traceback.format_exc(), error)
        raise
    pulse.leave(0)


def _reason(error: SystemExit) -> str:
    if not isinstance(error.code, int):
        return str(error.code)
    return f"the module left with exit code {error.code}" + (f": {error.__cause__}" if error.__cause__ else "")


def _record(report: str, error: BaseException) -> None:
    """Write torchrun's error file (form: errors.ErrorHandler), with the time in epoch ms and the exit code in addition.

    The time matters: peers fail within a millisecond of losing this rank, and its exit may take longer. The file is
    written under another name and renamed: torchrun may end this rank meanwhile, and half a file drops all failures.
    """
    name = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if name is None:
        return
    time_ms = rank_watch.stamp(error)
    exit_code = pulse.exit_code_of(error)
    extra = {
        "py_callstack": report,
        "timestamp": str(time_ms // 1000),
        "time_ms": time_ms,
        "exit_code": exit_code,
        "in_communication": pulse.is_of_communication(error),
    }
    data = {"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}}
    write_text(Path(name), json.dumps(data))


if __name__ == "__main__":
    main()
