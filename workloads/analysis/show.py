"""Summarizes a workload file as text or JSON."""

from collections import Counter
from pathlib import Path
from typing import Any

from common.summary import Summary
from workloads.formats.simai import SimaiWorkload, is_simai
from workloads.formats.simai_text import MICRO, NONE, POLICY
from workloads.formats.workload import Total, Workload
from workloads.job.parameters import DEFAULTS
from workloads.rows.ops import CommType, flops_of

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def summary(path: Path) -> Summary:
    """The summary of a CSV or SimAI workload; in its data all sizes are bytes.

    Raises:
        WorkloadFileError: the file is no workload.
    """
    facts = _simai_facts(path) if is_simai(path) else _csv_facts(path)
    return Summary("\n".join(_lines(facts)), facts)


def _csv_facts(path: Path) -> dict[str, Any]:
    workload, args = Workload.load(path)
    counts: Counter[str] = Counter()
    for item, count in workload.rows.tally_kinds().items():
        counts[item.comm_type.name] += count
    return {
        "file": str(path),
        "format": "csv",
        "rows": len(workload),
        "iterations": workload.iterations,
        "rows_per_epoch": [len(workload.epoch(0)), *([len(workload.epoch(1))] if workload.iterations else [])],
        "communication_bytes": workload.total_bytes,
        "computation_rows": counts[CommType.computation.name],
        "computation_flops": sum(flops_of(item) * count for item, count in workload.rows.tally_kinds().items()),
        "by_type_and_group": _table(workload, "comm_type", "comm_group"),
        "by_group": _table(workload, "comm_group"),
        "by_stage": _table(workload, "stage"),
        "args": None if args is None else args.to_dict(),
    }


def _table(workload: Workload, *by: str) -> list[dict[str, Any]]:
    totals: dict[tuple[str, ...], Total] = workload.totals(*by)
    return [
        {**dict(zip(by, key, strict=True)), "rows": total.rows, "bytes": total.bytes} for key, total in totals.items()
    ]


def _simai_facts(path: Path) -> dict[str, Any]:
    workload = SimaiWorkload.load(path)
    sums: dict[tuple[str, str], list[int]] = {}
    compute: Counter[str] = Counter()
    for item, count in workload.tally().items():
        for phase in ("forward", "input_gradient", "weight_gradient"):
            third = getattr(item, phase)
            compute[phase] += count * third.compute_ns
            if third.comm != NONE:
                entry = sums.setdefault((phase, third.comm), [0, 0])
                entry[0] += count
                entry[1] += count * third.size
    ordered = sorted(sums.items(), key=lambda entry: -entry[1][1])
    header = workload.header
    return {
        "file": str(path),
        "format": "simai",
        "rows": len(workload),
        "policy": MICRO if header is None else POLICY,
        "header": {} if header is None else {name: getattr(header, name) for name in header.__slots__},
        "compute_ns": dict(compute),
        "by_phase_and_collective": [
            {"phase": phase, "collective": comm, "rows": rows, "bytes": size} for (phase, comm), (rows, size) in ordered
        ],
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    """Scalars first, then each list of records as a table."""
    lines = []
    for name, value in facts.items():
        title = name.replace("_", " ")
        if name == "args":
            lines += _args_line(value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines += ["", title, *_table_lines(value)]
        elif isinstance(value, dict):
            lines.append(f"{title}: " + (", ".join(f"{key} {part}" for key, part in value.items()) or "none"))
        elif isinstance(value, list):
            lines.append(f"{title}: " + ", ".join(map(str, value)))
        else:
            lines.append(f"{title}: {readable(value) if name.endswith('bytes') else value}")
    return lines


def _args_line(args: dict[str, Any] | None) -> list[str]:
    if args is None:
        return ["", "parameters: no record beside the file"]
    default = DEFAULTS.to_dict()
    changed = [f"{name} {value}" for name, value in args.items() if value != default[name]]
    return ["", "parameters that differ from the defaults: " + (", ".join(changed) or "none")]


def _table_lines(records: list[dict[str, Any]]) -> list[str]:
    cells = [list(records[0])] + [
        [readable(value) if key == "bytes" else str(value) for key, value in record.items()] for record in records
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    numeric = [key in ("rows", "bytes") for key in records[0]]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    ]


def readable(size: int | float) -> str:
    """Bytes with a decimal unit: 1 kB is 1000 B."""
    power = 0
    while abs(size) >= 1000 ** (power + 1) and power < len(UNITS) - 1:
        power += 1
    return f"{size} B" if power == 0 else f"{size / 1000**power:.2f} {UNITS[power]}"
