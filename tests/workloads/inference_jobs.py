"""Lists the factors of the oracle's inference jobs and makes a job of a choice of their values."""

from tests.workloads.trace_jobs import Choice, Factors
from workloads.trace.job import TraceJob

INFERENCE: Factors = {
    "phase": ("prefill", "decode"),
    "model": ("llama", "qwen3", "deepseek"),
    "tp": (1, 2, 4),
    "pp": (1, 2, 4),
    "dp": (1, 2, 4),
    "ep": (1, 2, 4),
    "expert_tp": (None, 1),
    "stage": ("first", "middle", "last"),
    "micro_batches": (1, 3),
    "batch": (1, 3),
    "steps": (1, 2),
    "vocab": (32000, 50257),
    "query_groups": (None, 2, 4),
    "untied": (False, True),
    "dispatcher": ("allgather", "alltoall"),
    "routing": ("balanced", "zipf:1.2"),
    "position": ("rope", "learned_absolute"),
    "bias": (False, True),
}


def inference(choice: Choice) -> TraceJob | None:
    """The job of a choice, None where Megatron refuses it or a factor would say nothing."""
    tp, pp, dp, ep = choice["tp"], choice["pp"], choice["dp"], choice["ep"]
    stages = {"first": 0, "middle": pp // 2 - 1 if pp > 2 else None, "last": pp - 1 if pp > 1 else None}
    stage = stages[choice["stage"]]
    model = choice["model"]
    dense = model == "llama"
    impossible = (
        stage is None,
        dense and (ep > 1 or choice["expert_tp"] or choice["dispatcher"] != "alltoall"),
        dense and choice["routing"] != "balanced",
        tp * dp % ((choice["expert_tp"] or tp) * ep),
        choice["expert_tp"] == tp,
        choice["bias"] and not dense,
        model == "deepseek" and (choice["query_groups"] or choice["position"] != "rope"),
    )
    if any(impossible) or stage is None:
        return None
    world = tp * pp * dp
    latent = model == "deepseek"
    return TraceJob(
        phase=choice["phase"],
        rank=stage * (world // pp) + (tp * dp - 1 if choice["untied"] else 0),
        world_size=world,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel=pp,
        expert_model_parallel_size=ep,
        expert_tensor_parallel_size=choice["expert_tp"],
        micro_batch=choice["batch"],
        num_microbatches=choice["micro_batches"],
        iterations=choice["steps"],
        hidden_size=256,
        ffn_hidden_size=704,
        num_layers=2 * pp,
        seq_length=96,
        max_position_embeddings=128,
        num_attention_heads=8,
        num_query_groups=choice["query_groups"],
        vocab_size=choice["vocab"],
        position_embedding=choice["position"],
        add_bias_linear=choice["bias"],
        swiglu=True,
        untie_embeddings=choice["untied"],
        num_experts=0 if dense else 8,
        moe_router_topk=1 if dense else 2,
        moe_ffn_hidden_size=None if dense else 320,
        moe_shared_expert_size=384 if latent else None,
        moe_first_dense_layers=1 if latent else 0,
        moe_expert_bias=latent,
        moe_aux_loss=model == "qwen3",
        moe_token_dispatcher=choice["dispatcher"],
        routing=choice["routing"],
        multi_latent_attention=latent,
        qk_layernorm=not dense,
        q_lora_rank=96 if latent else 0,
        kv_lora_rank=64,
        qk_nope_dim=32,
        qk_rope_dim=16,
        v_head_dim=32,
    )
