"""What other projects read of nccl-tests' output, by their own patterns.

Sources: SuperBench, superbench/benchmarks/micro_benchmarks/cuda_nccl_bw_performance.py (commit 2c88db9): rows between
the line with `out-of-place` and that with `Out of bounds values`, columns counted from the end of the line with `time`
and `busbw`. CloudAI, src/cloudai/workloads/nccl_test/performance_report_generation_strategy.py (commit 0c4f0b1): rows
that begin with a digit and have 13 cells, and the lines of the ranks.
"""

import re

SUPERBENCH_ROW = r"\d+"
CLOUDAI_ROW = r"^\d"
CLOUDAI_CELLS = 13
CLOUDAI_HOST = r"on\s+([\w\d\-.]+)\s+device\s+(\d+)"
CLOUDAI_GPU = r"NVIDIA\s+(.+?)(?=\s*$|\s+\[|\s+device)"


def superbench(text: str, *, in_place: bool) -> dict[int, tuple[float, float, float]]:
    """By size: time in microseconds, algbw and busbw in GB/s of one form.

    Raises:
        ValueError: SuperBench would call the format invalid.
    """
    lines = text.splitlines()
    begin = max(number for number, line in enumerate(lines) if "out-of-place" in line)
    end = max(number for number, line in enumerate(lines) if "Out of bounds values" in line)
    inner = lines[begin + 1 : end]
    head = next(line for line in inner if "time" in line and "busbw" in line)[1:].split()
    assert head[0] == "size"
    from_end = {
        name: (max if in_place else min)(at for at, each in enumerate(head) if each == name) - len(head)
        for name in ("time", "algbw", "busbw")
    }
    rows = [line.split() for line in inner if re.match(SUPERBENCH_ROW, line.strip(" "))]
    return {
        int(row[0]): (float(row[from_end["time"]]), float(row[from_end["algbw"]]), float(row[from_end["busbw"]]))
        for row in rows
    }


def cloudai(text: str) -> list[tuple[int, list[float]]]:
    """(size, time, algbw and busbw of both forms) of each row that stays in CloudAI's table: all are numbers."""
    found = []
    for line in map(str.strip, text.splitlines()):
        cells = re.split(r"\s+", line)
        if re.match(CLOUDAI_ROW, line) and len(cells) == CLOUDAI_CELLS:
            found.append((int(cells[0]), [float(cell) for cell in (*cells[5:8], *cells[9:12])]))
    return found


def cloudai_devices(text: str) -> tuple[dict[str, int], set[str], int]:
    """(highest device of each host, names of the GPUs, ranks)."""
    lines = [line for line in text.splitlines() if "Rank" in line and "device" in line and "NVIDIA" in line]
    hosts: dict[str, int] = {}
    for line in lines:
        match = re.search(CLOUDAI_HOST, line)
        assert match, line
        hosts[match[1]] = max(hosts.get(match[1], -1), int(match[2]))
    return hosts, {match[1].strip() for line in lines if (match := re.search(CLOUDAI_GPU, line))}, len(lines)
