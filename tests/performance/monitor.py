"""What the monitor itself costs: CPU time of one core at 1 Hz, beside a shell pipeline for every sample."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from monitors.ports import PERIOD_S, PortSampler
from tests.monitors.fabric_tree import rdma_port
from tests.performance.rows import Row

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS, SMOKE_SECONDS = 20, 2
GOAL_PERCENT = 1.0
PORTS, SAMPLES = 8, 1000
FIRST_SAMPLE_SECONDS = 60.0

# CPU and memory the way a monitor reads them that starts programs for every sample (FlagPerf's does).
PIPELINES = (
    "head -n 1 /proc/stat | awk '{ print $5, $2 + $3 + $4 + $5 + $6 + $7 + $8 }'",
    "grep -E 'MemTotal|MemAvailable' /proc/meminfo | awk '{ print $2 }' | sort -n",
)


def measure(*, smoke: bool = False) -> list[Row]:
    """One row, in percent of a core at one sample a second."""
    seconds = SMOKE_SECONDS if smoke else SECONDS
    percent, start_s, lateness_ms = _monitor(seconds)
    pipelines = _pipelines(seconds)
    ports = _ports(SAMPLES // 10 if smoke else SAMPLES)
    return [
        Row(
            what=f"port counters of {PORTS} RDMA ports, CPU time",
            measured=f"{ports:.4f} % of a core, {ports * PERIOD_S * 10:.2f} ms each {PERIOD_S:g} s",
            baseline=f"{percent:.2f} %, the whole monitor on this machine",
            ratio=ports / percent,
            goal="under 0.05 % of a core",
            met=ports < 0.05,
        ),
        Row(
            what="monitor at 1 Hz, CPU time",
            measured=f"{percent:.2f} % of a core ({start_s:.2f} s to start, p95 {lateness_ms:.1f} ms late)",
            baseline=f"{pipelines:.2f} % with shell pipelines (CPU and memory alone)",
            ratio=percent / pipelines,
            goal=f"under {GOAL_PERCENT:g} % of a core",
            met=percent < GOAL_PERCENT,
        ),
    ]


def _ports(samples: int) -> float:
    """Percent of a core for the counters of PORTS ports every PERIOD_S. Files in memory stand for those of drivers."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for number in range(PORTS):
            rdma_port(tree / "ib", f"mlx5_{number}")
        sampler = PortSampler(tree / "net", tree / "ib")
        before = time.process_time()
        for _ in range(samples):
            sampler.sample_last()
        used = time.process_time() - before
        sampler.close()
    return 100 * used / samples / PERIOD_S


def _wait_for_sample(file: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait for the monitor's first sample of the CPU, as long as it runs and at most FIRST_SAMPLE_SECONDS."""
    until = time.monotonic() + FIRST_SAMPLE_SECONDS
    while not (file.is_file() and '"source":"cpu","values"' in file.read_text(encoding="utf-8")):
        if process.poll() is not None or time.monotonic() > until:
            return
        time.sleep(0.1)


def _monitor(seconds: int) -> tuple[float, float, float]:
    """Percent of a core while sampling, CPU seconds of the rest (start and end), p95 of the lateness in ms."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "monitors", "--log_dir", folder, "--vendor", "cpu", "--max_seconds", "600"]
        process = subprocess.Popen(argv, cwd=REPOSITORY)
        try:
            _wait_for_sample(Path(folder) / "monitor.jsonl", process)
            time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGTERM)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"the monitor ended with exit code {process.returncode}")
        last = (Path(folder) / "monitor.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    summary = json.loads(last)["summary"]
    start_s = usage.ru_utime + usage.ru_stime - summary["cpu_s"]
    return summary["cpu_percent_of_core"], start_s, summary["lateness_ms"]["p95"]


def _pipelines(seconds: int) -> float:
    """Percent of a core at one sample a second, from the CPU time of so many samples."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(seconds):
        for pipeline in PIPELINES:
            subprocess.run(["/bin/sh", "-c", pipeline], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 100 * used / seconds
