"""Formats the sweep as a table for people and parsers: the columns and lines that nccl-tests prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from training.benchmarks.network.hosts.nccl_tests import TYPES

_SUMS = ("all_reduce", "reduce", "reduce_scatter")
# Collectives of chunks: nccl-tests' count is of one rank's chunk, its size of all chunks.
_CHUNKED = ("all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "hypercube", "gather", "scatter")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_SIDE = ("time", "algbw", "busbw", "#wrong")
_SIDE_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")


def rank_line(rank: int, pid: int, host: str, device: int, pci: str, name: str) -> str:
    """The line of a rank: its process, and its device by local rank, PCI address (cpu: none) and name."""
    return f"#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device {device:2} [{pci or 'cpu'}] {name}"


def header(collective: str, world_size: int, device: str, convention: str, ranks: Sequence[str] = ()) -> str:
    """The lines above the rows; `ranks` has the line of each rank."""
    return "\n".join(
        (
            f"# {collective}, {world_size} ranks, {device}",
            f"# {convention}",
            "# of an operation with one form both sides show it, the one that was not run with N/A for #wrong",
            *(["# Using devices", *ranks] if ranks else []),
            "#",
            "#" + " " * 50 + "out-of-place".center(32) + "  " + "in-place".center(32),
            _line(["#", "size", "count", "type", "redop", "root", *_SIDE, *_SIDE]),
            _line(["#", "(B)", "(elements)", "", "", "", *_SIDE_UNITS, *_SIDE_UNITS]),
        )
    )


def row(result: Mapping[str, Any], other: Mapping[str, Any] | None = None) -> str:
    """The line of one size; `result` is the value of its STEP_END, `other` that of the other form.

    A form that was not run shows the other's figures, since nccl-tests' parsers take nothing but numbers, and N/A for
    its wrong elements. Where the time of nccl-tests was measured, it is shown instead of ours. What was measured after
    compute stands in a comment, for the parsers would take it for the size's own.
    """
    forms = {bool(each["in_place"]): _side(each) for each in (result, other) if each is not None}
    not_run = (*_side(result)[:-1], "N/A")
    name, dtype = str(result["collective"]), str(result["dtype"])
    count = int(result["count"]) // (int(result["world_size"]) if name in _CHUNKED else 1)
    return _line(
        [
            "#" if "after_compute_ms" in result else "",
            str(result["size_bytes"]),
            str(count),
            TYPES.get(dtype, dtype),
            str(result.get("op", "sum")) if name in _SUMS else "none",
            str(result.get("root", 0)) if name in _ROOTED else "-1",
            *forms.get(False, not_run),
            *forms.get(True, not_run),
        ]
    ) + (f"  # after {result['after_compute_ms']:g} ms of compute" if "after_compute_ms" in result else "")


def rows(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a sweep: two results that differ in their form only share a line, out of place first."""
    found: list[str] = []
    left = [*results]
    while left:
        first = left.pop(0)
        found.append(row(first, left.pop(0) if left and are_forms(first, left[0]) else None))
    return found


def are_forms(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two results are the two forms of one measurement, out of place first."""
    return not first["in_place"] and bool(second["in_place"]) and _same(first) == _same(second)


def _same(result: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(result.get(key) for key in ("collective", "size_bytes", "root", "op", "after_compute_ms", "repeat"))


def _side(result: Mapping[str, Any]) -> tuple[str, str, str, str]:
    wrong = result["wrong_elements"]
    theirs = result.get("nccl_tests_timing")
    shown = theirs or result
    time_us = theirs["time_us"] if theirs else result["time_us"]["p50"]
    return (
        f"{time_us:.2f}",
        f"{shown['algbw_GBps']:.2f}",
        f"{shown['busbw_GBps']:.2f}",
        "N/A" if wrong is None else str(wrong),
    )


def footer(results: Sequence[Mapping[str, Any]]) -> str:
    """The lines below the rows: wrong elements of all sizes, and the mean of their busbw."""
    checked = [int(result["wrong_elements"]) for result in results if result["wrong_elements"] is not None]
    wrong = f"{sum(checked)} {'FAILED' if sum(checked) else 'OK'}" if checked else "N/A (not checked)"
    mean = sum(float(result["busbw_GBps"]) for result in results) / len(results)
    return f"# Out of bounds values : {wrong}\n# Avg bus bandwidth    : {mean:g}\n#"


def _line(cells: Sequence[str]) -> str:
    mark, size, count, dtype, redop, root, *sides = cells
    left = f"{mark:1}{size:>12} {count:>12} {dtype:>9} {redop:>6} {root:>6}"
    out, inside = sides[:4], sides[4:]
    return left + "".join(" " + " ".join(cell.rjust(8) for cell in side) for side in (out, inside))
