"""Runs SimAI's own ns-3 simulator, where a user has it, in a private folder, and reads what it wrote.

Nothing of SimAI is shipped: `--simulator` is the user's SimAI_simulator, `--conf` the user's SimAI.conf, whose output
files are moved into the folder.
"""

import math
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.errors import MistakeList, SimulationError, input_problem
from common.progress import StepProgress

FILES = ("FLOW_FILE", "TRACE_FILE")  # that the simulator reads
SUFFIX, FLOWS_KEY = "_FILE", "FCT_OUTPUT_FILE"
LONGEST_S = 24 * 3600
SWITCHES = ("AS_NVLS_ENABLE", "AS_PXN_ENABLE")  # that are ours to set, whatever the shell has
TAIL = 2000  # characters of the simulator's last words
MOST_NS = 1 << 63


class EngineCall(NamedTuple):
    """A call of SimAI's simulator: the simulator's words, the inputs, and the environment that stands for our
    options.
    """

    simulator: list[str]
    workload: Path
    topology: Path
    conf: Path
    environment: dict[str, str]


class EngineRun(NamedTuple):
    """The result of SimAI's simulator, in us from the first start: makespan, mean over ranks, rank 0; number of flows.

    `total_us` is the iteration's time on rank 0, None where the table is empty.
    """

    makespan_us: float
    mean_us: float
    rank_0_us: float
    flows: int
    total_us: float | None
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether it wrote the table of the iteration."""
        return self.total_us is not None


def environment_of(send_lat_us: float, *, nvls: bool, pxn: bool) -> dict[str, str]:
    """The environment, with the variables that say to SimAI what options say to us."""
    found = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    found |= {"AS_SEND_LAT": f"{send_lat_us:g}"}
    return found | {name: "1" for name, on in zip(SWITCHES, (nvls, pxn), strict=True) if on}


def check_engine(simulator: str | None, conf: Path | None, mistakes: MistakeList) -> None:
    """Note what of the command and of the configuration will not do."""
    with mistakes.noted():
        if simulator is not None:
            simulator_words(simulator)
    with mistakes.noted(), suppress(OSError, UnicodeDecodeError):  # which read_conf notes
        if conf is not None:
            _conf_lines(conf)


def run_engine(call: EngineCall) -> EngineRun:
    """Run the simulator to its end.

    Raises:
        InputProblems: there is no such program.
        SimulationError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="simai-") as name:
        folder = Path(name)
        flows = _write_inputs(folder, call.conf)
        began = time.monotonic()
        words = [*call.simulator, "-t", "1", "-w", str(call.workload.resolve()), "-n", str(call.topology.resolve())]
        _run([*words, "-c", str(folder / "SimAI.conf")], folder, call.environment)
        return _read(folder, folder / flows, time.monotonic() - began)


def simulator_words(text: str) -> list[str]:
    """The words of --simulator, with the names of the program and of files as they are called from any folder.

    Raises:
        InputProblems: there are none, or a quote is open, or the first is no program.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise input_problem("--simulator", text, f"is no command: {error}") from None
    if not words:
        raise input_problem("--simulator", None, "must be the command of SimAI_simulator")
    program = shutil.which(words[0])
    if program is None:
        raise input_problem("--simulator", words[0], "is no program here")
    return [str(Path(program).absolute()), *map(_as_from_anywhere, words[1:])]


def _as_from_anywhere(word: str) -> str:
    """A word; the path of a file, such as that of a script, from the root. A word without `/` may mean anything."""
    with suppress(OSError):  # of a word that is too long for a name
        return str(Path(word).absolute()) if "/" in word and Path(word).is_file() else word
    return word


def _write_inputs(folder: Path, conf: Path) -> str:
    """The configuration with all files in the folder; returns the name of the flows' file."""
    lines = []
    for words in _conf_lines(conf):
        if words and words[0].endswith(SUFFIX):
            own = words[0].lower()
            if words[0] in FILES:
                (folder / own).write_text("0\n", encoding="utf-8")
            words = [words[0], str(folder / own)]
        lines.append(" ".join(words))
    (folder / "SimAI.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return FLOWS_KEY.lower()


def _conf_lines(conf: Path) -> list[list[str]]:
    lines = [*map(str.split, conf.read_text(encoding="utf-8").splitlines())]
    if not any(words[:1] == [FLOWS_KEY] for words in lines):
        raise input_problem(str(conf), None, f"names no {FLOWS_KEY}: --engine simai needs a whole SimAI.conf")
    return lines


def _run(words: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    """Run it to its end; what it started ends with it, as the command may be a script around it."""
    with (folder / "simulator.log").open("wb") as log:
        try:
            process = subprocess.Popen(
                words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise input_problem("--simulator", words[0], error.strerror or "cannot be run") from None
        try:
            with StepProgress("seconds of SimAI_simulator, of at most", LONGEST_S) as progress:
                for _second in range(LONGEST_S):
                    if _ended(process):
                        break
                    progress.advance()
            late = process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if late:
        raise SimulationError(f"SimAI_simulator did not end within {LONGEST_S // 3600} hours, and was stopped")
    if process.returncode:
        tail = (folder / "simulator.log").read_bytes()[-TAIL:].decode("utf-8", "replace").strip()
        raise SimulationError(f"SimAI_simulator ended with {process.returncode}: {tail or 'it printed nothing'}")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ends within a second."""
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        return False
    return True


def _read(folder: Path, flows: Path, seconds: float) -> EngineRun:
    lines = flows.read_text(encoding="ascii", errors="replace").splitlines() if flows.exists() else []
    if not lines:
        raise SimulationError("SimAI_simulator wrote no flow: it did not simulate anything")
    spans: list[tuple[list[int], int, int]] = []
    for number, line in enumerate(lines, 1):
        cells = line.split()
        try:
            begin, took = map(int, cells[5:7])
            if not 0 <= min(begin, took) <= max(begin, took) < MOST_NS:
                raise ValueError(line)
            spans.append(([(int(address, 16) >> 8) & 0xFFFF for address in cells[:2]], begin, begin + took))
        except ValueError:
            raise SimulationError(f"SimAI_simulator wrote no flow in line {number} of {flows.name}: {line}") from None
    first = min(begin for _nodes, begin, _end in spans)
    ends: dict[int, int] = {}
    for nodes, _begin, end in spans:
        for node in nodes:
            ends[node] = max(end - first, ends.get(node, 0))
    total = None
    for table in folder.rglob("*EndToEnd.csv"):
        last = table.read_text(encoding="utf-8", errors="replace").strip().rpartition(",total time,")
        with suppress(ValueError):  # a table that was cut has no number there, one of nothing -nan
            total = float(last[2]) if last[1] and 0 <= float(last[2]) < math.inf else total
    return EngineRun(
        max(ends.values()) / 1000, float(np.mean(list(ends.values()))) / 1000, ends.get(0, 0) / 1000, len(lines), total,
        seconds,
    )  # fmt: skip
