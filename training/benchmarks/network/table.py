"""Formats the sweep as a table for people and parsers: the columns and lines that nccl-tests prints."""

from collections.abc import Mapping, Sequence
from typing import Any

# nccl-tests' names of element types.
_TYPES = {"float64": "double", "float32": "float", "float16": "half"}
_SUMS = ("all_reduce", "reduce", "reduce_scatter")
# Collectives of chunks: nccl-tests' count is of one rank's chunk, its size of all chunks.
_CHUNKED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_SIDE = ("time", "algbw", "busbw", "#wrong")
_SIDE_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")
_NOT_RUN = ("N/A", "N/A", "N/A", "N/A")


def header(collective: str, world_size: int, device: str, convention: str) -> str:
    """The lines above the rows."""
    return "\n".join(
        (
            f"# {collective}, {world_size} ranks, {device}",
            f"# {convention}",
            "#",
            "#" + " " * 50 + "out-of-place".center(32) + "  " + "in-place".center(32),
            _line(["#", "size", "count", "type", "redop", "root", *_SIDE, *_SIDE]),
            _line(["#", "(B)", "(elements)", "", "", "", *_SIDE_UNITS, *_SIDE_UNITS]),
        )
    )


def row(result: Mapping[str, Any]) -> str:
    """The line of one size; `result` is the value of its STEP_END. A form that was not run shows N/A."""
    wrong = result["wrong_elements"]
    ran = (
        f"{result['time_us']['p50']:.2f}",
        f"{result['algbw_GBps']:.2f}",
        f"{result['busbw_GBps']:.2f}",
        "N/A" if wrong is None else str(wrong),
    )
    name, dtype = str(result["collective"]), str(result["dtype"])
    count = int(result["count"]) // (int(result["world_size"]) if name in _CHUNKED else 1)
    return _line(
        [
            "",
            str(result["size_bytes"]),
            str(count),
            _TYPES.get(dtype, dtype),
            "sum" if name in _SUMS else "none",
            "0" if name in _ROOTED else "-1",
            *((*_NOT_RUN, *ran) if result["in_place"] else (*ran, *_NOT_RUN)),
        ]
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
