"""Lists jobs whose depth is inferred, and records what the inference asks for, with the job's own trace beside it.

python -m tests.workloads.trace_depth --python .cache/trace/bin/python
"""

import argparse
import sys
from dataclasses import replace
from typing import Any

from tests.workloads.trace_matrix import FOLDER, recorded
from workloads.trace import deep
from workloads.trace.deep import wanted_jobs
from workloads.trace.depth import DepthError
from workloads.trace.job import TraceJob
from workloads.trace.record import save

FILE = FOLDER / "depth.jsonl.xz"
SHALLOW = (2, 4)
SMALL: dict[str, Any] = {
    "hidden_size": 256, "num_attention_heads": 8, "seq_length": 128, "max_position_embeddings": 128,
    "make_vocab_size_divisible_by": 64, "vocab_size": 4000,
}  # fmt: skip
SPLIT: dict[str, Any] = SMALL | {"tensor_model_parallel_size": 2, "enable_sequence_parallel": True}
STAGES: dict[str, Any] = SPLIT | {"world_size": 8, "pipeline_model_parallel": 2, "num_microbatches": 2}
EXPERTS: dict[str, Any] = {
    "num_experts": 4, "moe_router_topk": 2, "expert_model_parallel_size": 2, "moe_ffn_hidden_size": 192,
    "moe_expert_bias": True, "moe_shared_expert_size": 128, "routing": "zipf:1.2",
}  # fmt: skip
SHARDED: dict[str, Any] = {
    "world_size": 8, "hidden_size": 64, "seq_length": 16, "num_attention_heads": 4, "num_layers": 8, "vocab_size": 2001,
    "swiglu": True,
}  # fmt: skip
ZERO: dict[str, Any] = SHARDED | {"frame": "DeepSpeed", "iterations": 3}

INFERRED = {
    # Seven layers in the last of three stages, six in the others; the padding of 6 shards is no multiple of a layer.
    "uneven": TraceJob(
        **STAGES | {"world_size": 36, "pipeline_model_parallel": 3}, rank=24, num_layers=22, num_layers_first_stage=7,
        num_layers_last_stage=7, use_distributed_optimizer=True, activation_recompute="full",
    ),
    "interleaved": TraceJob(
        **STAGES, rank=4, num_layers=28, virtual_pipeline=2, overlap_p2p=True, swiglu=True, untie_embeddings=True,
    ),
    # DeepSeek's shape: a dense layer in the first stage, then experts.
    "experts": TraceJob(
        **STAGES | EXPERTS, num_layers=14, moe_first_dense_layers=1, multi_latent_attention=True, qk_layernorm=True,
        q_lora_rank=96, kv_lora_rank=64, qk_nope_dim=32, qk_rope_dim=16, v_head_dim=32,
        use_distributed_optimizer=True,
    ),
    # A bucket for each layer's part, which repeats: 256 * 256 elements close one.
    "buckets": TraceJob(
        **SMALL, world_size=4, num_layers=9, use_distributed_optimizer=True, overlap_grad_reduce=True,
        overlap_param_gather=True, iterations=2, bucket_size=65536,
    ),
    # A layer is 65,664 elements, the embedding 128,064: more than a bucket, it is reduced in its owners' parts.
    "zero1 in order": TraceJob(**ZERO, stage=1, reduce_bucket_size=90_000, num_microbatches=2),
    "zero1 as ready": TraceJob(
        **ZERO | {"world_size": 6}, stage=1, reduce_bucket_size=90_000, overlap_comm=True, untie_embeddings=True,
        rank=5,
    ),
    "zero2": TraceJob(
        **ZERO | {"world_size": 6}, stage=2, reduce_bucket_size=150_000, num_microbatches=2, dtype="float16",
        contiguous_gradients=False, add_bias_linear=True,
    ),
    # The third depth, of 456,448 elements, is one bucket: another one proves where buckets end.
    "zero2 of two buckets": TraceJob(**ZERO, stage=2, reduce_bucket_size=500_000),
    # Shards of 64 elements on 6 ranks are padded; what fills a bucket is not.
    "zero3": TraceJob(
        **ZERO | {"world_size": 6}, stage=3, reduce_bucket_size=150_000, num_microbatches=3, num_query_groups=2,
        activation_recompute="full",
    ),
    "zero3 of short windows and buckets across layers": TraceJob(
        **ZERO, stage=3, prefetch_bucket_size=40_000, max_live_parameters=60_000, reduce_bucket_size=50_000,
    ),
    # What is gathered ahead reaches into the next layer but one, as LLaMA-2 7B's default windows into the sixth.
    "zero3 of windows over layers": TraceJob(
        **ZERO | {"num_layers": 12}, stage=3, param_persistence_threshold=100, prefetch_bucket_size=16_000,
        max_live_parameters=120_000, max_reuse_distance=120_000,
    ),
    "fsdp2": TraceJob(**SHARDED, frame="FSDP2", activation_recompute="full", num_microbatches=2),
    "zero1": TraceJob(**ZERO, stage=1),
    "zero3 of one window": TraceJob(**ZERO, stage=3),
    "zero3 of short windows": TraceJob(
        **ZERO, stage=3, prefetch_bucket_size=40_000, max_live_parameters=60_000, reduce_bucket_size=10_000,
    ),
}  # fmt: skip
"""Jobs whose trace is inferred."""
DEEPER = {"zero3 of windows over layers": (4, 6)}
"""Those that are inferred from other depths than SHALLOW."""
REFUSED = {
    "layers that share buckets": (replace(INFERRED["buckets"], bucket_size=2_000_000), "do not end with the layers"),
    "one bucket that would be full": (
        replace(INFERRED["buckets"], num_layers=16, bucket_size=6_000_000), "closes at 6000000 elements",
    ),
    "too many dense layers": (replace(INFERRED["experts"], moe_first_dense_layers=2), "first 2 layers are dense"),
    "layers that no stage has": (replace(INFERRED["interleaved"], num_layers=30), "not divided evenly"),
    "parts of owners": (replace(INFERRED["zero2 of two buckets"], reduce_bucket_size=10_000), "parts that its owners"),
    "parameters of one size with padding": (
        replace(INFERRED["zero3"], world_size=5000, num_microbatches=1), r"parameters of \[.*\] elements on",
    ),
    "small parameters of some layers": (
        replace(INFERRED["zero3 of short windows"], model_persistence_threshold=1000), "may hold the small weights",
    ),
    "groups of the optimizer": (
        replace(INFERRED["zero3 of one window"], sub_group_size=40_000), "world_size . sub_group_size 320000",
    ),
    "a window of some layers": (
        replace(INFERRED["zero3 of short windows"], prefetch_bucket_size=200_000), "prefetch_bucket_size 200000",
    ),
}  # fmt: skip
"""Jobs whose trace cannot be inferred, and a part of the reason."""


def _is_traced(job: TraceJob) -> bool:
    """Whether a job is refused only after it has been traced."""
    try:
        deep.before(job, SHALLOW)
    except DepthError:
        return False
    return True


def main() -> None:
    """Record the jobs."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="of an environment with requirements/trace.lock")
    given = parser.parse_args()
    wanted = [each for name, job in INFERRED.items() for each in wanted_jobs(job, DEEPER.get(name, SHALLOW))]
    refused = [job for job, _ in REFUSED.values() if _is_traced(job)]
    wanted += [each for job in refused for each in wanted_jobs(job, SHALLOW)]
    unique = {str(job): job for job in [*INFERRED.values(), *wanted]}
    save(recorded(given.python, list(unique.values())), FILE)


if __name__ == "__main__":
    main()
