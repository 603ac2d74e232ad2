"""What vendors/cuda_device.py calls of torch.cuda is there and takes these arguments, also in the build for CUDA."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CUDA = ROOT / ".cache" / "cuda" / "bin" / "python"
CALLED = {
    "CUDAGraph", "Event", "Stream", "_sleep", "can_device_access_peer", "check_error", "clock_rate", "cudart",
    "current_stream", "device_count", "empty_cache", "get_device_capability", "get_device_name",
    "get_device_properties", "get_rng_state", "graph", "initial_seed", "max_memory_allocated", "mem_get_info",
    "memory._dump_snapshot", "memory._record_memory_history", "nccl.version", "power_draw",
    "reset_peak_memory_stats", "set_device", "set_rng_state", "stream", "synchronize", "temperature",
}  # fmt: skip


def found(python: str | Path) -> dict[str, Any]:
    """What the workload finds with this Python's torch."""
    argv = [str(python), "-m", "tests.vendors.cuda_classes"]
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    read: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return read


@pytest.mark.torch
def test_every_call_fits_torchs_own_signatures() -> None:
    assert set(found(sys.executable)["called"]) == CALLED


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.skipif(not CUDA.exists(), reason="no .cache/cuda: make nightly installs torch's build for CUDA there")
def test_the_build_for_cuda_has_the_classes_of_nccl_events_and_properties() -> None:
    both = found(CUDA)
    assert set(both["called"]) == CALLED
    version = both["cuda"].pop("version")
    assert version[0] == 2 and len(version) == 3
    assert both["cuda"] == {
        "backend": True, "options": "Options", "group": ["supports_splitting", "perform_nocolor_split"],
        "event": [True, True], "runtime": ["cudaHostRegister", "cudaHostUnregister"],
        "properties": [
            "L2_cache_size", "multi_processor_count", "pci_bus_id", "pci_device_id", "pci_domain_id", "total_memory"
        ],
        "is_of_this_torch": True, "here": "cpu",
    }  # fmt: skip
