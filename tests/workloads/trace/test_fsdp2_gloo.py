"""Holds the tracer of FSDP2 to real gloo ranks: what torch's profiler sees in gloo itself, call by call."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workloads.rows.calls import Call
from workloads.rows.ops import CommType
from workloads.trace import command
from workloads.trace.job import TraceJob

ROOT = Path(__file__).resolve().parents[3]
RANKS = 4
SMALL: dict[str, Any] = {
    "frame": "FSDP2", "world_size": RANKS, "num_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "vocab_size": 500, "seq_length": 16,
}  # fmt: skip
TITAN = {"fsdp_units": "torchtitan", "untie_embeddings": True}
JOBS = {
    "torch's defaults": SMALL,
    "torchtitan": SMALL | TITAN,
    "torchtitan with two copies of the shards and two micro-batches": (
        SMALL | TITAN | {"replicate": 2, "num_microbatches": 2}
    ),
    "torchtitan with tensor parallelism": SMALL | TITAN | {"tensor_model_parallel_size": 2},
    "torchtitan with tensor parallelism, biases and recomputation": (
        SMALL | TITAN | {"tensor_model_parallel_size": 2, "add_bias_linear": True, "activation_recompute": "full"}
    ),
}
WIDTHS = {"float": 4, "c10::BFloat16": 2}


def carried(path: Path) -> Iterator[tuple[str, int]]:
    """Kind and bytes of what gloo was given, in order. It reduces and scatters by reducing all."""
    events = [each for each in json.loads(path.read_text())["traceEvents"] if each.get("name", "").startswith("gloo:")]
    for event in sorted(events, key=lambda each: each["ts"]):
        elements = 1
        for size in event["args"]["Input Dims"][0]:
            elements *= size
        yield event["name"].removeprefix("gloo:"), elements * WIDTHS[event["args"]["Input type"][0]]


def given_to_gloo(op: Call) -> tuple[str, int]:
    """What a traced call gives to gloo."""
    if op.comm_type is CommType.all_gather_into_tensor:
        return "all_gather", op.bytes // len(op.ranks)
    assert op.comm_type in (CommType.all_reduce, CommType.reduce_scatter_tensor)
    return "all_reduce", op.bytes


@pytest.mark.nightly
@pytest.mark.parametrize("name", JOBS)
def test_the_trace_of_a_rank_is_what_gloo_carries(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"{__package__}.fsdp2_ranks", json.dumps(JOBS[name]), str(tmp_path)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}, capture_output=True,
        text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for trace in command.traced_by_frameworks([TraceJob(**JOBS[name], rank=rank) for rank in (0, RANKS - 1)]):
        assert not trace.iterations[0]
        real = list(carried(tmp_path / f"rank{trace.job.rank}.json"))
        traced = [given_to_gloo(op) for op in trace.iterations[1]]
        # Each group has threads of its own: which of two groups' operations begins first is theirs to decide.
        groups = {op.ranks for op in trace.iterations[1]}
        assert (traced == real) if len(groups) == 1 else (sorted(traced) == sorted(real))
        # The norm of the gradients, which DTensor sends: one number a parameter.
        assert real[-1][0] == "all_reduce" and real[-1][1] < 150
