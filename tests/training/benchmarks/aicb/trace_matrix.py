"""Draws the configurations whose traces are the oracle, and records them with the frameworks of another environment.

Pairwise covering: any two values of any two factors occur together in some configuration, as far as a framework can
run both. Drawn with a fixed seed, so the same matrix comes out each time.
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from training.benchmarks.aicb.trace.job import TraceJob
from training.benchmarks.aicb.trace.record import Trace, save

FOLDER = Path(__file__).resolve().parents[3] / "data" / "aicb" / "traces"
ROOT = Path(__file__).resolve().parents[4]
SEED = 15
CANDIDATES = 6000
Choice = Mapping[str, Any]
Factors = Mapping[str, tuple[Any, ...]]

MEGATRON: Factors = {
    "tp": (1, 2, 4),
    "pp": (1, 2, 4),
    "vpp": (1, 2),
    "dp": (1, 2, 4),
    "sp": (False, True),
    "distributed_optimizer": (False, True),
    "overlap": ("none", "gradients", "parameters"),
    "untied": (False, True),
    "vocab": (32000, 50257),
    "query_groups": (None, 2, 4),
    "recompute": ("none", "selective", "full"),
    "stage": ("first", "middle", "last"),
    "micro_batches": (1, 2),
    "position": ("rope", "learned_absolute"),
    "norm": ("RMSNorm", "LayerNorm"),
    "bias": (False, True),
    "swiglu": (False, True),
    "uneven": (False, True),
    "qk_layernorm": (False, True),
    "fp32_gradients": (True, False),
}


def megatron(choice: Choice) -> TraceJob | None:
    """The job of a choice, None where Megatron refuses it or a factor would say nothing."""
    tp, pp, vpp, dp = choice["tp"], choice["pp"], choice["vpp"], choice["dp"]
    stages = {"first": 0, "middle": pp // 2 - 1 if pp > 2 else None, "last": pp - 1 if pp > 1 else None}
    stage = stages[choice["stage"]]
    overlap = choice["overlap"]
    impossible = (
        vpp > 1 and pp == 1,
        choice["sp"] and tp == 1,
        choice["uneven"] and (pp < 3 or vpp > 1),
        overlap == "parameters" and not choice["distributed_optimizer"],
    )
    if any(impossible) or stage is None:
        return None
    world = tp * pp * dp
    layers = 2 * pp * vpp
    return TraceJob(
        rank=stage * (world // pp) + (tp * dp - 1 if choice["bias"] else 0),
        world_size=world,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel=pp,
        virtual_pipeline=vpp,
        overlap_p2p=vpp > 1,
        num_microbatches=choice["micro_batches"] * pp if pp > 1 else choice["micro_batches"],
        micro_batch=2 if choice["swiglu"] else 1,
        iterations=2 if overlap == "parameters" else 1,
        hidden_size=256,
        ffn_hidden_size=704 if choice["swiglu"] else None,
        num_layers=layers - 2 if choice["uneven"] else layers,
        num_layers_first_stage=1 if choice["uneven"] else None,
        num_layers_last_stage=1 if choice["uneven"] else None,
        seq_length=128,
        max_position_embeddings=128,
        num_attention_heads=8,
        num_query_groups=choice["query_groups"],
        vocab_size=choice["vocab"],
        position_embedding=choice["position"],
        normalization=choice["norm"],
        qk_layernorm=choice["qk_layernorm"],
        add_bias_linear=choice["bias"],
        swiglu=choice["swiglu"],
        untie_embeddings=choice["untied"],
        recompute=choice["recompute"],
        enable_sequence_parallel=choice["sp"],
        use_distributed_optimizer=choice["distributed_optimizer"],
        overlap_grad_reduce=overlap != "none",
        overlap_param_gather=overlap == "parameters",
        grad_reduce_in_fp32=choice["fp32_gradients"],
        # Small enough that a stage has several buckets.
        bucket_size=300_000 if overlap != "none" else None,
    )


EXPERTS: Factors = {
    "tp": (1, 2, 4),
    "pp": (1, 2, 4),
    "vpp": (1, 2),
    "dp": (1, 2, 4, 8),
    "ep": (1, 2, 4),
    "expert_tp": (None, 1),
    "distributed_optimizer": (False, True),
    "overlap": ("none", "gradients", "parameters"),
    "dispatcher": ("allgather", "alltoall"),
    "routing": ("balanced", "zipf:1.2"),
    "topk": (1, 2, 3),
    "stage": ("first", "middle", "last"),
    "untied": (False, True),
    "recompute": ("none", "full"),
    "query_groups": (None, 4),
    "shared_expert": (None, 384),
    "first_dense": (0, 1),
    "aux_loss": (False, True),
    "expert_bias": (False, True),
    "latent": (False, True),
    "swiglu": (False, True),
}


def megatron_experts(choice: Choice) -> TraceJob | None:
    """The job with experts of a choice, None where Megatron refuses it."""
    tp, pp, vpp, dp, ep = choice["tp"], choice["pp"], choice["vpp"], choice["dp"], choice["ep"]
    stages = {"first": 0, "middle": pp // 2 - 1 if pp > 2 else None, "last": pp - 1 if pp > 1 else None}
    stage = stages[choice["stage"]]
    overlap = choice["overlap"]
    impossible = (
        vpp > 1 and pp == 1,
        tp * dp % ((choice["expert_tp"] or tp) * ep),
        choice["expert_tp"] == tp,
        overlap == "parameters" and not choice["distributed_optimizer"],
        choice["expert_bias"] and choice["aux_loss"],
        choice["latent"] and choice["query_groups"],
    )
    if any(impossible) or stage is None:
        return None
    world = tp * pp * dp
    return TraceJob(
        rank=stage * (world // pp) + (tp * dp - 1 if choice["swiglu"] else 0),
        world_size=world,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel=pp,
        virtual_pipeline=vpp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=choice["expert_tp"],
        overlap_p2p=vpp > 1,
        num_microbatches=pp,
        iterations=2 if overlap == "parameters" else 1,
        hidden_size=256,
        ffn_hidden_size=704,
        num_layers=2 * pp * vpp,
        seq_length=128,
        max_position_embeddings=128,
        num_attention_heads=8,
        num_query_groups=choice["query_groups"],
        swiglu=choice["swiglu"],
        untie_embeddings=choice["untied"],
        recompute=choice["recompute"],
        enable_sequence_parallel=tp > 1,
        use_distributed_optimizer=choice["distributed_optimizer"],
        overlap_grad_reduce=overlap != "none",
        overlap_param_gather=overlap == "parameters",
        bucket_size=600_000 if overlap != "none" else None,
        num_experts=8,
        moe_router_topk=choice["topk"],
        moe_ffn_hidden_size=320,
        moe_shared_expert_size=choice["shared_expert"],
        moe_token_dispatcher=choice["dispatcher"],
        moe_first_dense_layers=choice["first_dense"],
        moe_aux_loss=choice["aux_loss"],
        moe_expert_bias=choice["expert_bias"],
        routing=choice["routing"],
        multi_latent_attention=choice["latent"],
        qk_layernorm=choice["latent"],
        q_lora_rank=96 if choice["latent"] else None,
        kv_lora_rank=64,
        qk_head_dim=32,
        qk_pos_emb_head_dim=16,
        v_head_dim=32,
    )


MATRICES = {"megatron_experts": (EXPERTS, megatron_experts, 40), "megatron": (MEGATRON, megatron, 60)}


def pairs(choice: Choice) -> set[tuple[Any, ...]]:
    """Every two values that occur together in a choice."""
    return {(a, choice[a], b, choice[b]) for a, b in combinations(sorted(choice), 2)}


def covering(name: str) -> list[TraceJob]:
    """Jobs in which every possible pair of values occurs, at least as many as the matrix wants."""
    factors, job_of, least = MATRICES[name]
    generator = random.Random(SEED)
    possible: list[tuple[set[tuple[Any, ...]], TraceJob]] = []
    for _ in range(CANDIDATES):
        choice = {factor: generator.choice(values) for factor, values in factors.items()}
        job = job_of(choice)
        if job is not None:
            possible.append((pairs(choice), job))
    missing = set().union(*(found for found, _ in possible))
    chosen: list[TraceJob] = []
    while missing or len(chosen) < least:
        found, job = max(possible, key=lambda each: len(each[0] & missing))
        missing -= found
        possible.remove((found, job))
        chosen.append(job)
    return chosen


def recorded(python: str, jobs: list[TraceJob]) -> Iterator[Trace]:
    """Trace jobs with the frameworks of another environment."""
    command = [python, "-m", "training.benchmarks.aicb.trace.worker"]
    lines = "".join(f"{json.dumps(job.to_dict())}\n" for job in jobs)
    answers = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    for job, line in zip(jobs, answers.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        if "error" in answer:
            print(f"{job.to_dict()}\n{answer['traceback']}", file=sys.stderr)
        else:
            yield Trace.from_line(line)


def main() -> None:
    """Record the matrices."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="of an environment with requirements/trace.lock")
    parser.add_argument("matrix", choices=MATRICES, nargs="+")
    given = parser.parse_args()
    for name in given.matrix:
        save(recorded(given.python, covering(name)), FOLDER / f"{name}.jsonl.xz")


if __name__ == "__main__":
    main()
