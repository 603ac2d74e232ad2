"""The memory estimate of a step of several micro-batches against what real ranks hold in it."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT

COMMON: dict[str, Any] = {
    "num_layers": 4, "hidden_size": 128, "ffn_hidden_size": 352, "vocab_size": 512, "seq_length": 64,
    "train_batch_size": 1, "gradient_accumulation_steps": 4, "precision": "bf16", "attention": "sdpa",
}  # fmt: skip
SECONDS = 900.0  # ends a hang: beside other work four ranks have waited longer than three minutes
pytestmark = pytest.mark.timeout(SECONDS + 60)
PP: dict[str, Any] = COMMON | {"pipeline_parallel_size": 4}
LAYOUTS: dict[str, dict[str, Any]] = {
    "fsdp": COMMON | {"strategy": "fsdp", "activation_checkpointing": True},
    "pipeline_replicas": PP | {"pipeline_parallel_size": 2, "activation_checkpointing": True},
    "hsdp": COMMON | {"strategy": "hsdp", "shard_size": 2},
    "fsdp_short": COMMON | {"strategy": "fsdp", "vocab_size": 4096, "seq_length": 4},
    "fsdp_fp32": COMMON | {"strategy": "fsdp", "precision": "fp32"},
    "pipeline": PP,
    "pipeline_interleaved": PP | {"num_layers": 8, "pipeline_parallel_size": 2, "pipeline_stages_per_rank": 2},
    "pipeline_recomputed": PP | {"activation_checkpointing": "selective"},
}


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Of each layout what was measured and estimated, in bytes."""
    folder = tmp_path_factory.mktemp("held")
    file = folder / "layouts.json"
    file.write_text(json.dumps(LAYOUTS))
    argv = [sys.executable, "-m", "tests.training.benchmarks.driver.training.held_workload", str(folder), str(file)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in LAYOUTS}


@pytest.mark.nightly
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_step_of_several_micro_batches_holds_what_is_estimated(name: str, held: dict[str, dict[str, float]]) -> None:
    """Whole float32 gradients, and a copy of a stage's weights for each micro-batch in flight, would be missed."""
    measured, estimated = held[name]["measured"] / 1e6, held[name]["estimated"] / 1e6
    assert 0.98 < estimated / measured < 1.25, f"{estimated:.2f} MB are estimated, {measured:.2f} MB measured"
