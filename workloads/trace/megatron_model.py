"""Describes a traced job to Megatron-core: its configuration and the model of one stage."""

from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
from megatron.core.transformer import MLATransformerConfig, TransformerConfig

from workloads.trace.job import TraceJob


def transformer_config(job: TraceJob) -> TransformerConfig:
    """The job in Megatron's terms; kernels are the plain ones, which send the same."""
    extra: dict[str, Any] = {}
    if job.activation_recompute == "full":
        extra = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    elif job.activation_recompute == "selective":
        extra = {"recompute_granularity": "selective"}
    if job.multi_latent_attention:
        extra |= {
            "q_lora_rank": job.q_lora_rank or None, "kv_lora_rank": job.kv_lora_rank, "qk_head_dim": job.qk_nope_dim,
            "qk_pos_emb_head_dim": job.qk_rope_dim, "v_head_dim": job.v_head_dim, "rope_type": "rope",
        }  # fmt: skip
    kind = MLATransformerConfig if job.multi_latent_attention else TransformerConfig
    return kind(
        num_layers=job.num_layers,
        hidden_size=job.hidden_size,
        ffn_hidden_size=job.ffn_size,
        num_attention_heads=job.num_attention_heads,
        num_query_groups=job.num_query_groups,
        kv_channels=job.kv_channels,
        tensor_model_parallel_size=job.tensor_model_parallel_size,
        pipeline_model_parallel_size=job.pipeline_model_parallel,
        virtual_pipeline_model_parallel_size=job.virtual_pipeline if job.virtual_pipeline > 1 else None,
        num_layers_in_first_pipeline_stage=job.num_layers_first_stage,
        num_layers_in_last_pipeline_stage=job.num_layers_last_stage,
        context_parallel_size=job.context_parallel_size,
        cp_comm_type=job.cp_comm_type,
        expert_model_parallel_size=job.expert_model_parallel_size,
        expert_tensor_parallel_size=job.expert_tensor_parallel_size,
        sequence_parallel=job.enable_sequence_parallel,
        overlap_p2p_comm=job.overlap_p2p,
        batch_p2p_comm=not job.overlap_p2p,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        bf16=True,
        perform_initialization=True,
        add_bias_linear=job.add_bias_linear,
        gated_linear_unit=job.swiglu,
        activation_func=torch.nn.functional.silu if job.swiglu else torch.nn.functional.gelu,
        normalization=job.normalization,
        qk_layernorm=job.qk_layernorm,
        multi_latent_attention=job.multi_latent_attention,
        hidden_dropout=job.hidden_dropout,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        deallocate_pipeline_outputs=True,
        **_experts(job),
        **extra,
    )


def _experts(job: TraceJob) -> dict[str, Any]:
    if not job.num_experts:
        return {}
    dense = job.moe_first_dense_layers
    return {
        "num_moe_experts": job.num_experts,
        "moe_layer_freq": [int(layer >= dense) for layer in range(job.num_layers)],
        "moe_router_topk": job.moe_router_topk,
        "moe_router_pre_softmax": job.moe_router_topk == 1,
        "moe_ffn_hidden_size": job.moe_ffn_hidden_size or job.ffn_size,
        "moe_shared_expert_intermediate_size": job.moe_shared_expert_size,
        "moe_token_dispatcher_type": job.moe_token_dispatcher,
        "moe_router_load_balancing_type": "aux_loss" if job.moe_aux_loss else "none",
        "moe_aux_loss_coeff": 0.01 if job.moe_aux_loss else 0.0,
        "moe_router_enable_expert_bias": job.moe_expert_bias,
        "moe_router_score_function": "sigmoid" if job.moe_expert_bias else "softmax",
    }


def model_chunk(job: TraceJob, config: TransformerConfig, number: int) -> GPTModel:
    """The layers of the virtual stage `number` on this rank, with embedding and head where they belong."""
    stage = number if job.virtual_pipeline > 1 else None
    spec = (
        get_gpt_decoder_block_spec(config, False, normalization=job.normalization, vp_stage=stage)
        if job.num_experts
        else get_gpt_layer_local_spec(
            normalization=job.normalization,
            qk_layernorm=job.qk_layernorm,
            multi_latent_attention=job.multi_latent_attention,
        )
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=job.padded_vocab_size,
        max_sequence_length=job.max_position_embeddings,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        share_embeddings_and_output_weights=not job.untie_embeddings,
        position_embedding_type=job.position_embedding,
        vp_stage=stage,
    )
