"""Lists the factors of the oracle's jobs with their values, says which a framework has, and makes a job of a choice."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workloads.job.parameters import CP_COMM_TYPES, FSDP_UNITS
from workloads.trace.checks import problems
from workloads.trace.job import TraceJob

Choice = Mapping[str, Any]
Factors = Mapping[str, tuple[Any, ...]]

VALUES: Factors = {
    "tp": (1, 2, 4),
    "pp": (1, 2, 4),
    "vpp": (1, 2),
    "dp": (1, 2, 4, 8),
    "ep": (1, 2, 4),
    "expert_tp": (None, 1),
    "cp": (2, 4),
    "cp_comm": CP_COMM_TYPES,
    "place": (0, 1, 2, 3),
    "world": (1, 2, 6, 8, 64, 4096),
    "replicate": (1, 2),
    "layers": (1, 3),
    "micro_batches": (1, 2, 5),
    "stage": ("first", "middle", "last"),
    "last_rank": (False, True),
    "sp": (False, True),
    "distributed_optimizer": (False, True),
    "overlap": ("none", "gradients", "parameters"),
    "dtype": ("bfloat16", "float16"),
    "fp32_gradients": (False, True),
    "clip": (0.0, 1.0),
    "untied": (False, True),
    "vocab": (2000, 2501, 4000, 5027, 32000, 50257),
    "query_groups": (None, 2, 4),
    "recompute": ("none", "selective", "full"),
    "position": ("rope", "learned_absolute"),
    "norm": ("RMSNorm", "LayerNorm"),
    "bias": (False, True),
    "swiglu": (False, True),
    "uneven": (False, True),
    "qk_layernorm": (False, True),
    "kv_channels": (None, 48),
    "dispatcher": ("allgather", "alltoall"),
    "routing": ("balanced", "zipf:1.2"),
    "topk": (1, 2, 3),
    "shared_expert": (None, 384),
    "first_dense": (0, 1),
    "experts": (False, True),
    "q_lora": (0, 96),
    "aux_loss": (False, True),
    "expert_bias": (False, True),
    "latent": (False, True),
    "reshard": (None, True, False),
    "units": FSDP_UNITS,
    "bucket": (20_000, 100_000, 500_000_000),
    "comm_overlap": (False, True),
    "contiguous": (False, True),
    "persistent": (0, 100, 100_000),
    "model_persistent": (5_000, sys.maxsize),
    "prefetch": (0, 50_000, 50_000_000),
    "live": (150_000, 1_000_000_000),
    "reuse": (0, 150_000, 1_000_000_000),
    "sub_group": (20_000, 1_000_000_000),
    "zero": (1, 2, 3),
}
"""Every factor, with all values that a framework gets."""


def _factors(names: str, **fewer: tuple[Any, ...]) -> Factors:
    """The factors of a matrix; `fewer`: those of which it gets some values, or them in another order."""
    chosen = {name: fewer.pop(name, VALUES[name]) for name in names.split()}
    odd = [name for name, values in chosen.items() if not set(values) <= set(VALUES[name])]
    if odd or fewer:
        raise ValueError(f"no factor or value of a factor: {[*odd, *fewer]}")
    return chosen


MEGATRON = _factors(
    "tp pp vpp dp sp distributed_optimizer overlap untied vocab query_groups recompute stage micro_batches position "
    "norm bias swiglu uneven qk_layernorm fp32_gradients",
    dp=(1, 2, 4), vocab=(32000, 50257), micro_batches=(1, 2), fp32_gradients=(True, False),
)  # fmt: skip
_EXPERTS = (
    "tp pp vpp dp ep expert_tp distributed_optimizer overlap dispatcher routing topk stage untied recompute "
    "query_groups shared_expert first_dense aux_loss expert_bias latent swiglu"
)
_FEWER: dict[str, tuple[Any, ...]] = {"recompute": ("none", "full"), "query_groups": (None, 4)}
EXPERTS = _factors(_EXPERTS, **_FEWER)
WIDTHS = _factors(f"{_EXPERTS} vocab kv_channels", **_FEWER, vocab=(32000, 50257))
ORDERS = _factors(
    "tp pp dp sp distributed_optimizer overlap untied position norm bias swiglu qk_layernorm experts latent q_lora "
    "shared_expert first_dense dispatcher fp32_gradients",
    tp=(1, 2), pp=(1, 2), dp=(2, 4), overlap=("gradients", "parameters"),
)  # fmt: skip
CONTEXT = _factors(
    "cp cp_comm place tp pp dp sp distributed_optimizer overlap recompute query_groups experts latent aux_loss stage "
    "swiglu",
    tp=(1, 2), pp=(1, 2), dp=(1, 2), overlap=("none", "gradients"), query_groups=(None, 4), stage=("first", "last"),
)  # fmt: skip
FSDP2 = _factors(
    "world replicate tp units layers micro_batches untied vocab query_groups recompute reshard fp32_gradients bias "
    "swiglu clip last_rank",
    world=(2, 8, 64), micro_batches=(1, 2), vocab=(4000, 5027), query_groups=(None, 2), recompute=("none", "full"),
    tp=(1, 2),
)  # fmt: skip
_ZERO = (
    "zero world layers micro_batches dtype untied vocab query_groups recompute bucket comm_overlap contiguous bias "
    "swiglu clip last_rank"
)
_SMALL: dict[str, tuple[Any, ...]] = {
    "world": (1, 2, 6, 64), "vocab": (2000, 2501), "query_groups": (None, 2), "recompute": ("none", "full"),
}  # fmt: skip
ZERO = _factors(_ZERO, zero=(1, 2), **_SMALL)
ZERO3 = _factors(f"{_ZERO} persistent model_persistent prefetch live reuse sub_group", zero=(3,), **_SMALL)


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
        activation_recompute=choice["recompute"],
        enable_sequence_parallel=choice["sp"],
        use_distributed_optimizer=choice["distributed_optimizer"],
        overlap_grad_reduce=overlap != "none",
        overlap_param_gather=overlap == "parameters",
        grad_reduce_in_fp32=choice["fp32_gradients"],
        # Small enough that a stage has several buckets.
        bucket_size=300_000 if overlap != "none" else None,
    )


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
        activation_recompute=choice["recompute"],
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
        q_lora_rank=96 if choice["latent"] else 0,
        kv_lora_rank=64,
        qk_nope_dim=32,
        qk_rope_dim=16,
        v_head_dim=32,
    )


def megatron_widths(choice: Choice) -> TraceJob | None:
    """As `megatron_experts`, with a vocabulary and heads of their own widths."""
    job = megatron_experts(choice)
    if job is None or (choice["latent"] and choice["kv_channels"]):
        return None
    return replace(job, vocab_size=choice["vocab"], kv_channels=choice["kv_channels"])


def megatron_orders(choice: Choice) -> TraceJob | None:
    """A job with a bucket for each parameter, which shows in which order gradients are complete and parameters used."""
    experts, latent, tp = choice["experts"], choice["latent"], choice["tp"]
    # Megatron-core adds biases of experts in place, which fails where one rank has them all.
    ep = 2 if experts and choice["bias"] else 1
    fixed = {"stage": "first", "vpp": 1, "ep": ep, "expert_tp": 1 if tp > 1 else None, "routing": "balanced",
             "topk": 2, "aux_loss": False, "expert_bias": False, "recompute": "none", "query_groups": None}  # fmt: skip
    job = megatron_experts({**choice, **fixed})
    impossible = (
        choice["sp"] and tp == 1,
        experts and tp > 1 and not choice["sp"],
        # Megatron-core's shared experts have no biases.
        choice["shared_expert"] and (choice["bias"] or not experts),
        choice["first_dense"] and not experts,
        choice["q_lora"] and not latent,
        latent and choice["position"] != "rope",
        choice["dispatcher"] != "alltoall" and not experts,
    )
    if job is None or any(impossible):
        return None
    job = replace(
        job,
        bucket_size=1,
        iterations=2,
        hidden_size=128,
        seq_length=32,
        vocab_size=1000,
        num_microbatches=2,
        enable_sequence_parallel=choice["sp"],
        position_embedding=choice["position"],
        normalization=choice["norm"],
        add_bias_linear=choice["bias"],
        qk_layernorm=choice["qk_layernorm"],
        q_lora_rank=choice["q_lora"],
        grad_reduce_in_fp32=choice["fp32_gradients"],
    )
    return job if experts else replace(job, num_experts=0, expert_tensor_parallel_size=None)


def fsdp2(choice: Choice) -> TraceJob | None:
    """The job with FSDP2 of a choice, None where torch or torchtitan cannot run it or it was not traced."""
    if choice["world"] <= choice["replicate"] * choice["tp"]:
        return None
    job = _sharded(choice, "FSDP2", reshard_after_forward=choice["reshard"], replicate=choice["replicate"],
                   grad_reduce_in_fp32=choice["fp32_gradients"], fsdp_units=choice["units"],
                   tensor_model_parallel_size=choice["tp"])  # fmt: skip
    return None if problems(job) else job


def zero(choice: Choice) -> TraceJob:
    """The job with ZeRO 1 or 2 of a choice."""
    return _zero(choice)


def zero3(choice: Choice) -> TraceJob:
    """The job with ZeRO 3 of a choice."""
    return _zero(choice, param_persistence_threshold=choice["persistent"], prefetch_bucket_size=choice["prefetch"],
                 model_persistence_threshold=choice["model_persistent"],
                 max_live_parameters=choice["live"], max_reuse_distance=choice["reuse"],
                 sub_group_size=choice["sub_group"])  # fmt: skip


def _zero(choice: Choice, **more: Any) -> TraceJob:
    return _sharded(choice, "DeepSpeed", stage=choice["zero"], iterations=3, dtype=choice["dtype"],
                    reduce_bucket_size=choice["bucket"], overlap_comm=choice["comm_overlap"],
                    contiguous_gradients=choice["contiguous"], **more)  # fmt: skip


def _sharded(choice: Choice, frame: str, **more: Any) -> TraceJob:
    return TraceJob(
        frame=frame,
        rank=choice["world"] - 1 if choice["last_rank"] else 0,
        world_size=choice["world"],
        num_layers=choice["layers"],
        num_microbatches=choice["micro_batches"],
        hidden_size=64,
        seq_length=16,
        num_attention_heads=4,
        num_query_groups=choice["query_groups"],
        vocab_size=choice["vocab"],
        untie_embeddings=choice["untied"],
        activation_recompute=choice["recompute"],
        add_bias_linear=choice["bias"],
        swiglu=choice["swiglu"],
        clip_grad=choice["clip"],
        **more,
    )


def megatron_context(choice: Choice) -> TraceJob | None:
    """The job with context parallelism of a choice, None where it cannot be divided so."""
    cp, experts = choice["cp"], choice["experts"]
    fixed = {"vpp": 1, "expert_tp": 1 if choice["tp"] > 1 else None, "dispatcher": "alltoall", "routing": "balanced",
             "topk": 2, "stage": choice["stage"], "shared_expert": None, "first_dense": 0, "untied": True,
             "expert_bias": False, "ep": 1}  # fmt: skip
    job = megatron_experts({**choice, **fixed})
    if job is None or (choice["sp"] and choice["tp"] == 1) or (experts and choice["tp"] > 1 and not choice["sp"]):
        return None
    if choice["aux_loss"] and not experts:
        return None
    world = job.world_size * cp
    job = replace(
        job,
        world_size=world,
        rank=job.pp_stage * (world // choice["pp"]) + choice["place"] % cp * choice["tp"],
        context_parallel_size=cp,
        cp_comm_type=choice["cp_comm"],
        expert_model_parallel_size=2 if experts else 1,
        enable_sequence_parallel=choice["sp"],
        computation_enable=True,
        vocab_size=1000,
        hidden_size=128,
        kv_channels=None if choice["latent"] else 16,
    )
    job = job if experts else replace(job, num_experts=0, expert_tensor_parallel_size=None)
    return None if problems(job) else job
