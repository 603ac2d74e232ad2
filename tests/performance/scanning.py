"""The analysis of a scan of all pairs: CPU time, memory and PerfLog, and how they grow from 64 to 1,024 hosts.

Every pair of hosts is measured in 3 repeats at 2 sizes, as rank 0 logs it; one host is slow. The fabric has three
tiers, which the analysis learns: racks of 8, pods of 64, narrower uplinks of the pods. Each size of cluster is
analysed in a process of its own, as rank 0 would: line by line of the PerfLog, so that its peak memory is that of the
analysis. The values are drawn before, in another process.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.performance.peak import own_peak
from tests.performance.rows import Row

ROOT = Path(__file__).resolve().parents[2]
HOSTS, SMOKE_HOSTS = (64, 256, 1024), (24, 32)
REPEATS, SIZES = 3, (8, 4 << 20)
SLOW_HOST = 5
TIERS = (8, 64)
GOAL_S, GOAL_BYTES, GOAL_LOG_BYTES = 10.0, 1e9, 100e6
_WRITE, _READ = "write", "read"


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each figure of the largest cluster, and one for the growth."""
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for hosts in SMOKE_HOSTS if smoke else HOSTS:
            log = Path(folder) / f"{hosts}.log"
            _run(_WRITE, hosts, log)
            found[hosts] = json.loads(_run(_READ, hosts, log)) | {"log": float(log.stat().st_size)}
            log.unlink()
    (least, few), (most, many) = min(found.items()), max(found.items())
    more = (most * (most - 1)) / (least * (least - 1))
    growth = many["cpu_s"] / few["cpu_s"]
    what = f"network scan, {most} hosts"
    return [
        Row(
            what=f"{what}: CPU time of reading and analysing it",
            measured=f"{many['cpu_s']:.1f} s",
            baseline=f"{few['cpu_s']:.2f} s for {least} hosts",
            ratio=growth,
            goal=f"under {GOAL_S:.0f} s, {more:.0f} times the measurements in at most {2 * more:.0f} times the time",
            met=many["cpu_s"] < GOAL_S and growth < 2 * more,
        ),
        _bytes_row(f"{what}: peak memory of that process", many["peak"], few["peak"], least, GOAL_BYTES),
        _bytes_row(f"{what}: PerfLog of rank 0", many["log"], few["log"], least, GOAL_LOG_BYTES),
    ]


def _bytes_row(what: str, most: float, least: float, hosts: int, goal: float) -> Row:
    return Row(
        what=what,
        measured=f"{most / 1e6:.0f} MB",
        baseline=f"{least / 1e6:.1f} MB for {hosts} hosts",
        ratio=most / least,
        goal=f"under {goal / 1e6:.0f} MB",
        met=most < goal,
    )


def _run(what: str, hosts: int, log: Path) -> str:
    argv = [sys.executable, "-m", "tests.performance.scanning", what, str(hosts), str(log)]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(argv)} left with {result.returncode}: {result.stderr[-2000:]}")
    return result.stdout


def steps(hosts: int) -> Iterator[dict[str, Any]]:
    """STEP_END values of a scan, packed as rank 0 logs them."""
    import numpy as np

    from training.benchmarks.network.patterns.schedule import HostRanks, rounds
    from training.benchmarks.network.slow_parts import packing

    latency_us, rates = np.array([20.0, 26.0, 34.0]), np.array([40e3, 40e3, 25e3])
    draw = np.random.default_rng(hosts)
    every = [HostRanks(node_rank=k, name=f"node{k + 1}", ranks=(k,)) for k in range(hosts)]
    schedule = rounds("pairs", every)
    quantiles = np.array([0.97, 0.99, 1.0, 1.015, 1.03, 1.06])
    for repeat in range(1, REPEATS + 1):
        for each in schedule:
            pairs = np.array([[host.node_rank for host in group.hosts] for group in each.groups])
            slow = np.where((pairs == SLOW_HOST).any(axis=1), 2.0, 1.0)
            for size in SIZES:
                tier = np.sum([pairs[:, 0] // block != pairs[:, 1] // block for block in TIERS], axis=0)
                level = latency_us[tier] + np.maximum(size / 40e3 * slow, size / rates[tier])
                times = level * np.exp(draw.normal(0, 0.02, len(pairs)))
                codes = np.rint((np.log(np.outer(quantiles, times)) - packing.LOG_LEAST_US) / packing.STEP).astype(int)
                columns = dict(zip(packing.TIMES, map(packing.encode, codes.tolist()), strict=True))
                groups = {
                    "groups": len(pairs),
                    "hosts": 2,
                    "node_ranks": packing.encode(pairs.flatten().tolist()),
                    **columns,
                    "size_bytes": size,
                    "world_size": 2,
                    "iterations": 20,
                    "dtype": "float32",
                    "collective": "all_reduce",
                    "busbw_over_algbw": 1.0,
                    "stalled_iterations": {},
                }
                place = {"collective": "all_reduce", "pattern": "pairs", "repeat": repeat, "round": each.name}
                yield place | {"size_bytes": size, "packed": groups, "correct": "pass"}


def _write(hosts: int, log: Path) -> None:
    from protocol.perflog import Event, PerfLogger

    with log.open("w", encoding="utf-8") as file:
        logger = PerfLogger(0, file)
        for step in steps(hosts):
            logger.log(Event.STEP_BEGIN, {name: value for name, value in step.items() if name != "packed"})
            logger.log(Event.STEP_END, step)


def _read(hosts: int, log: Path) -> None:
    """Print the CPU seconds and the peak memory, bytes, of reading a PerfLog and analysing it."""
    begin = time.process_time()
    from common.garbage import without_collection
    from training.benchmarks.network.slow_parts.analysis import analyse_scan
    from training.benchmarks.network.slow_parts.judge import Bounds
    from training.benchmarks.network.slow_parts.readings import Scan

    scan = Scan({rank: f"node{rank + 1}" for rank in range(hosts)})
    with without_collection(), log.open("rb") as file:
        for line in file:
            scan.add(json.loads(line.removeprefix(b"[PerfLog] "))["value"])
    found = analyse_scan(scan, Bounds(slow_percent=15.0))
    if found is None or [each.hosts for each in found.findings] != [(f"node{SLOW_HOST + 1}",)]:
        raise RuntimeError(f"node{SLOW_HOST + 1} alone should be found: {found and found.sentences}")
    cpu_s = time.process_time() - begin
    print(json.dumps({"cpu_s": cpu_s, "peak": own_peak()}))


if __name__ == "__main__":
    {_WRITE: _write, _READ: _read}[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
