"""The sweep as a table for people, in nccl-tests' columns."""

from collections.abc import Mapping
from typing import Any

_COLUMNS = {
    "size(B)": 12,
    "count": 12,
    "type": 9,
    "min(us)": 11,
    "p50(us)": 11,
    "p95(us)": 11,
    "algbw(GB/s)": 12,
    "busbw(GB/s)": 12,
    "#wrong": 11,
}


def header(collective: str, world_size: int, device: str, convention: str) -> str:
    """The lines above the rows."""
    return f"# {collective}, {world_size} ranks, {device}\n# {convention}\n{_line([*_COLUMNS])}"


def row(result: Mapping[str, Any]) -> str:
    """The line of one size; `result` is the value of its STEP_END."""
    times = result["time_us"]
    wrong = result["wrong_elements"]
    return _line(
        [
            str(result["size_bytes"]),
            str(result["count"]),
            str(result["dtype"]),
            *(f"{times[name]:.2f}" for name in ("min", "p50", "p95")),
            f"{result['algbw_GBps']:.3f}",
            f"{result['busbw_GBps']:.3f}",
            "N/A" if wrong is None else str(wrong),
        ]
    )


def _line(cells: list[str]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, _COLUMNS.values(), strict=True))
