"""A stand-in for the NVIDIA driver's library, compiled once a session: 8 devices whose life a script tells."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from run_benchmarks.results.samples.summary import summarize

SOURCE = Path(__file__).with_name("scripted_nvml.c")
ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 8


def compiled(folder: Path) -> Path:
    """A folder for LD_LIBRARY_PATH that holds the library under the driver's name."""
    words = [
        "gcc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(folder / "libnvidia-ml.so.1"),
        str(SOURCE),
    ]
    subprocess.run(words, check=True)
    return folder


def in_containers() -> None:
    """Put the library where tests/cluster/hooks/nvidia-container-runtime-hook looks for it."""
    folder = ROOT / ".cache" / "scripted_nvml"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        name = "libnvidia-ml.so.1"
        (compiled(Path(beside)) / name).replace(folder / name)


def watched(library: Path, folder: Path, script: str, devices: int = 8) -> dict[str, Any]:
    """The summary of a real monitor, through the real nvidia-ml-py, of so many SAMPLES of devices with this script."""
    folder.mkdir()
    environment = os.environ | {"LD_LIBRARY_PATH": str(library), "NVML_SCRIPT": script, "NVML_DEVICES": str(devices)}
    words = ["--log_dir", str(folder), "--vendor", "nvidia", "--interval", "0.1", "--max_seconds", "200"]
    samples = folder / "monitor.jsonl"
    with subprocess.Popen([sys.executable, "-m", "monitors", *words], cwd=ROOT, env=environment) as monitor:
        while monitor.poll() is None and (
            not samples.exists() or samples.read_text(encoding="utf-8").count('"source":"accelerator",') < SAMPLES
        ):
            time.sleep(0.02)
        monitor.terminate()
    assert monitor.returncode == 0
    return asdict(summarize(samples))
