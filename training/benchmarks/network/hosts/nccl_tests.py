"""Runs nccl-tests beside our own measurement, for the same sizes on one host, and parses its output.

It parses both forms of output: the table on stdout, and the JSON file of versions that have -J. nccl-tests reports a
mean over iterations that are awaited one by one (-z 1); our time is the median of the slowest rank's time.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from common.units import format_size

PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf", "broadcast": "broadcast_perf", "reduce": "reduce_perf", "gather": "gather_perf",
    "scatter": "scatter_perf", "send_recv_ring": "sendrecv_perf", "hypercube": "hypercube_perf",
    "all_to_all_v": "alltoallv_perf",
}  # fmt: skip
# nccl-tests' names of element types.
TYPES = {
    "float64": "double", "float32": "float", "float16": "half", "bfloat16": "bfloat16", "int64": "int64",
    "int32": "int32", "int8": "int8", "uint8": "uint8", "uint32": "uint32", "uint64": "uint64",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_SIDE = 4  # time, algbw, busbw, #wrong
_LEFT = 3  # size, count and type at least; redop and root came with later versions
_ROOT = 4  # the place of the root, behind redop
_HELP_SECONDS = 60


class NcclTestsError(Exception):
    """nccl-tests is missing, failed, or printed something unexpected; the message states what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two forms at one size: microseconds, GB/s (1e9 bytes); `wrong` is None if unchecked."""

    time_us: float
    busbw_gbps: float
    wrong: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Theirs:
    """One size of nccl-tests, and its root, None where it has or tells none; a form that was not run is None."""

    size_bytes: int
    out_of_place: Side | None
    in_place: Side | None
    root: int | None = None


def find(collective: str, folder: str | None) -> Path:
    """The program for the collective, in `folder` or on PATH.

    Raises:
        NcclTestsError: the program is in neither place.
    """
    program = PROGRAMS[collective]
    found = shutil.which(program, path=folder or os.environ.get("PATH"))
    if found is None:
        where = f"in {folder}" if folder else "on PATH"
        raise NcclTestsError(
            f"nccl-tests' {program} is not {where}; build github.com/NVIDIA/nccl-tests in the image and set"
            " nccl_tests to its build folder"
        )
    return Path(found)


def options_of(
    *,
    dtype: str,
    warmup: int,
    iterations: int,
    op: str = "sum",
    root: int | str = 0,
    aggregate: int = 1,
    waits: bool = True,
) -> list[str]:
    """nccl-tests' options for our settings; `waits`: for every iteration (-z 1), as ours; else back to back."""
    common = ["-d", TYPES[dtype], "-w", str(warmup), "-n", str(iterations), "-c", "1", "-z", "1" if waits else "0"]
    return [*common, "-m", str(aggregate), "-o", op, "-r", "-1" if root == "all" else str(root)]


def run(program: Path, sizes: Sequence[int], *, gpus: int, chosen: Sequence[str], timeout_s: float) -> list[Theirs]:
    """Measure `sizes`, in bytes, with the options `chosen`, one call per range, all within `timeout_s`.

    Raises:
        NcclTestsError: a call fails, takes too long or prints no results.
    """
    writes_json = "-J" in _call([str(program), "--help"], _HELP_SECONDS, check=False)
    found: list[Theirs] = []
    options = ranges(sizes)
    for option in options:
        argv = [str(program), *option, "-g", str(gpus), *chosen]
        if not writes_json:
            found += parse_table(_call(argv, timeout_s / len(options)))
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results.json"
            _call([*argv, "-J", str(file)], timeout_s / len(options))
            found += parse_json(file.read_text(encoding="utf-8") if file.is_file() else "")
    if not found:
        raise NcclTestsError(f"{program}: printed no results")
    return found


def ranges(sizes: Sequence[int]) -> list[list[str]]:
    """Options for `sizes` in bytes: one range if each is the same multiple of the last, else a call each."""
    ordered = sorted(set(sizes))
    factors = {after / before for before, after in pairwise(ordered)}
    if len(factors) == 1 and (factor := factors.pop()).is_integer():
        return [["-b", str(ordered[0]), "-e", str(ordered[-1]), "-f", str(int(factor))]]
    return [["-b", str(size), "-e", str(size), "-f", "2"] for size in ordered]


def _call(argv: Sequence[str], timeout_s: float, *, check: bool = True) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcclTestsError(f"{' '.join(argv)}: {error}") from error
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise NcclTestsError(f"{' '.join(argv)}: exit code {done.returncode}: {said}")
    return done.stdout + done.stderr


def parse_table(text: str) -> list[Theirs]:
    """The rows of the table on stdout, for any columns to the left of the two forms' four."""
    found = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) < _LEFT + _SIDE or not cells[0].isdecimal():
            continue
        in_place = _side(cells[-_SIDE:])
        rest = cells[:-_SIDE]
        out_of_place = _side(rest[-_SIDE:]) if len(rest) >= _LEFT + _SIDE else None
        if in_place or out_of_place:
            root = _root(cells[_ROOT] if len(rest) > _ROOT + _SIDE else None)
            found.append(Theirs(size_bytes=int(cells[0]), out_of_place=out_of_place, in_place=in_place, root=root))
    return found


def _root(told: object) -> int | None:
    """The root that a row tells; -1 stands for an operation that has none."""
    text = str(told).strip()
    return int(text) if text.isdecimal() else None


def _side(cells: Sequence[str]) -> Side | None:
    time, _, busbw, wrong = cells
    try:
        return Side(time_us=float(time), busbw_gbps=float(busbw), wrong=None if wrong == "N/A" else float(wrong))
    except ValueError:  # N/A: this form did not run
        return None


def parse_json(text: str) -> list[Theirs]:
    """The results in the file that -J writes.

    Raises:
        NcclTestsError: the text has another form.
    """
    try:
        rows = json.loads(text)["results"]
        return [
            Theirs(
                size_bytes=int(row["size"]),
                root=_root(row.get("root")),
                **{name: _json_side(row.get(name)) for name in ("out_of_place", "in_place")},
            )
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NcclTestsError(f"its JSON has another form than expected: {error!r}") from error


def _json_side(side: Mapping[str, Any] | None) -> Side | None:
    if side is None:
        return None
    wrong = side.get("nwrong")
    time = side["time"] if "time" in side else side["cpu_time"]
    return Side(time_us=float(time), busbw_gbps=float(side["bus_bw"]), wrong=None if wrong is None else float(wrong))


def _name(step: Mapping[str, Any], *, has_both: bool, has_roots: bool) -> str:
    root = f" root {step['root']}" if has_roots else ""
    return format_size(int(step["size_bytes"])) + root + (" in place" if has_both and step["in_place"] else "")


def _side_of(
    step: Mapping[str, Any], known: Mapping[tuple[int, int | None], Theirs], *, has_roots: bool
) -> Side | None:
    """Theirs for our step; a row that tells no root is of the only one."""
    size = int(step["size_bytes"])
    other = known.get((size, step.get("root", 0)))
    if other is None and not has_roots:
        other = known.get((size, None))
    return (other.in_place if step["in_place"] else other.out_of_place) if other else None


def beside(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Theirs]) -> tuple[dict[str, float], list[str]]:
    """({size: our busbw / theirs, dimensionless}, sentences) for the values of our STEP_END and nccl-tests' results.

    Only what nccl-tests measures, too: nothing after compute. A size is followed by the root of each of several roots,
    and by "in place" where both forms are measured.
    """
    known = {(each.size_bytes, each.root): each for each in theirs}
    alike = [step for step in ours if "after_compute_ms" not in step]
    has_both = len({bool(step["in_place"]) for step in alike}) > 1
    has_roots = len({step.get("root") for step in alike}) > 1
    ratios: dict[str, float] = {}
    sentences = []
    for step in alike:
        name = _name(step, has_both=has_both, has_roots=has_roots)
        side = _side_of(step, known, has_roots=has_roots)
        if side is None:
            sentences.append(f"{name}: nccl-tests did not measure it")
            continue
        ours_like_theirs = step.get("nccl_tests_timing") or {**step, "time_us": step["time_us"]["p50"]}
        if side.busbw_gbps > 0:
            ratios[name] = float(ours_like_theirs["busbw_GBps"]) / side.busbw_gbps
        ratio = f": {ratios[name]:.2f}x" if name in ratios else ""
        sentences.append(
            f"{name}: ours {ours_like_theirs['time_us']:.4g} us,"
            f" {ours_like_theirs['busbw_GBps']:.4g} GB/s busbw;"
            f" nccl-tests {side.time_us:.4g} us, {side.busbw_gbps:.4g} GB/s{ratio}"
            + (", wrong data" if side.wrong else "")
        )
    return ratios, sentences
