"""Records of AIOB with made-up times, as the measuring process answers them."""

from dataclasses import replace
from typing import Any

from training.benchmarks.aicb.measuring.job import AiobJob
from training.benchmarks.aicb.measuring.parts import parts_of
from training.benchmarks.aicb.measuring.statistics import summarise
from workloads.library import WorkloadArgs, generate
from workloads.rows.ops import gemms_of

GPT = WorkloadArgs(
    world_size=8, tensor_model_parallel_size=2, hidden_size=64, num_layers=4, num_attention_heads=4, seq_length=32,
    global_batch=8, vocab_size=256,
)  # fmt: skip
LATENT = replace(
    GPT, frame="DeepSeek", moe_enable=True, num_experts=4, moe_router_topk=2, enable_sequence_parallel=True,
    q_lora_rank=16, kv_lora_rank=16, qk_nope_dim=8, qk_rope_dim=4, v_head_dim=8, n_shared_expert=1, swiglu=True,
    n_dense_layers=1,
)  # fmt: skip


def times(ns: float, *, settled: bool = True) -> dict[str, Any]:
    """Samples around `ns`: 0.9, 1 and 1.1 times as long."""
    return summarise([0.9 * ns, ns, 1.1 * ns], warm_up=5, settled=settled, spread=0.01).to_dict()


def record(args: WorkloadArgs, *, attention: str = "sdpa", layer_ns: float | None = None) -> dict[str, Any]:
    """Part number n takes n us forward and 2 n us backward, product number n takes 100 + n us.

    layer_ns: of the whole layer's forward pass, by default that of its parts.
    """
    parts = parts_of(args, fused=attention != "unfused")
    rows = generate(replace(args, computation_enable=True), dialect="aicb").rows
    numbered = [(number, part) for number, part in enumerate(parts, start=1)]
    summed = sum(1000.0 * number for number, part in numbered if part.layer)
    layer_ns = summed if layer_ns is None else layer_ns
    return {
        "job": AiobJob(args=args, iterations=3).to_dict(),
        "device": {"type": "cpu", "name": "A test's processor", "versions": "torch 0", "threads": 1},
        "kernels": {kind: {"used": used, "why": "a test"} for kind, used in
                    {"attention": attention, "norm": "torch", "experts": "bmm", "optimizer": "fused"}.items()},
        "began": "2026-11-22 12:00:00",
        "parts": [
            {"name": part.name, "kind": part.kind, "section": part.section, "sizes": part.sizes,
             "forward": times(1000.0 * number),
             "backward": None if part.kind == "adam" else times(2000.0 * number),
             **({"measured_elements": part.sizes["elements"]} if part.kind == "adam" else {})}
            for number, part in numbered
        ],
        "layer": {"forward": times(layer_ns), "backward": times(2 * layer_ns)},
        "gemms": [
            {"op": gemm.op, "m": gemm.m, "k": gemm.k, "n": gemm.n, **times(100_000.0 + 1000 * number)}
            for number, gemm in enumerate(gemms_of(rows.tally()), start=1)
        ],
        "notes": [],
    }  # fmt: skip
