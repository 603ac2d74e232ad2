"""Lists where AICB 2.1 differs from Megatron, DeepSpeed or SimAI. The dialect reproduces each of these.

The code that reproduces a deviation names its entry; a dialect that follows the real frameworks has none of them.
"""

from workloads.dialects.base import Deviation

_MEGATRON = {
    "pipeline_double_step": "With pipeline parallelism each iteration ends with two optimizer steps.",
    "pipeline_gradients": "A stage's parameters are divided by pp once more, so gradients are pp times too small.",
    "pipeline_without_loss": (
        "With pipeline parallelism there are no loss collectives, and every stage has an embedding and an output head."
    ),
    "pipeline_p2p_size": (
        "Point-to-point rows carry the whole activation T even where sequence parallelism has split it; the input "
        "broadcasts over tp are there even with tp 1."
    ),
    "pp_rank_setup": "pp_rank changes only the set-up rows; the schedule is always that of the first stage.",
    "embedding_copies": "The word embedding counts four times as parameters.",
    "output_head": "The output head counts as parameters, untied, but never runs.",
    "layer_norms": "Each layer has one layer norm instead of two, and there is none at the end.",
    "layernorm_grads": "The reduction of the layer-norm gradients carries 0 bytes.",
    "swiglu_gate": "swiglu changes the default MLP width, but the gate matrix never exists.",
    "backward_order": "Inside a layer the backward pass runs attention before MLP, column before row.",
    "row_stage_dot": (
        "The stage of a row-parallel layer's backward GEMMs lacks a dot: backward.MegatronRowLinearmlp_row."
    ),
    "sequence_parallel_gemm": "With sequence parallelism the column GEMM has s * tp rows, though s is already whole.",
    "missing_gemms": "Attention core, norms, softmax, output head and experts have no computation rows.",
    "no_tp_loss": "The loss reductions over tp are there even with tp 1.",
    "aiob_whole_blocks": (
        "Each computation row is given the time of its whole attention or MLP block: 2x forward, 4x backward."
    ),
    "idle_batch_split": (
        "A global batch that does not divide is rounded down, to no micro-batches at all if it is small (refused "
        "without --break_rules)."
    ),
}
_EXPERTS = {
    "moe_backward": "The backward pass of an expert layer sends nothing.",
    "moe_group_size": "Expert rows have no group size (None), which makes AICB's bus bandwidth 0.",
    "moe_gradients": "Expert gradients are reduced over all of dp instead of the ranks that share an expert.",
    "shared_experts": (
        "DeepSeek's shared experts are one MLP of the routed width, however many there are; dense layers have that "
        "width too."
    ),
    "q_lora_zero": "With q_lora_rank 0 DeepSeek's query projections have no parameters at all.",
}
_ZERO = {
    "zero1_reduces_each_micro_batch": "ZeRO 1 reduces gradients in every micro-batch, not once an iteration.",
    "zero2_all_reduce": "ZeRO 2 without contiguous gradients all-reduces instead of reducing to the owners.",
    "barrier_bytes": "ZeRO 1 and 2 give the barrier the bytes of the last parameter; totals here count 0.",
    "empty_queue_release": (
        "ZeRO 3 releases everything after use once the prefetch queue is empty, persistent parameters too, and gathers "
        "them again."
    ),
    "embedding_gemm": "Embeddings are GEMMs of the vocabulary's size.",
    "dgrad_shape": "The input gradient's GEMM has the shapes of the forward one.",
    "prefetch_gemms": (
        "ZeRO 3's computation rows of a prefetched parameter stand where it is gathered, not where it is used, and a "
        "parameter that is still whole has none."
    ),
    "zero2_ranges": (
        "With contiguous gradients a bucket that begins where an owner's share begins has an empty reduction to the "
        "owner before; on one rank a bucket that spans micro-batches has a wrong, even negative, size."
    ),
    "zero_pipeline": (
        "ZeRO with pipeline stages has no forward or backward rows, two steps an iteration and a share of the layers "
        "(refused without --break_rules)."
    ),
    "wgrad_stage": "ZeRO 3's weight-gradient rows have an empty stage.",
}
_SIMAI = {
    "simai_vpp": "vpp is the number of layers of a stage; SimAI multiplies pipeline time by it.",
    "simai_pp_comm_float": "With sequence parallelism pp_comm is a float.",
    "simai_plain_groups": (
        "Without AIOB the parameter all-gather is in the forward column, so SimAI runs it over tp; expert parameters "
        "are in it again; tp collectives are there even with tp 1; the embedding gradient is reduced in every "
        "micro-batch, unsharded and unpadded."
    ),
    "simai_plain_backward": (
        "Without AIOB sequence-parallel layers send nothing backward, and rows without a collective carry sizes; "
        "recompute doubles bytes instead of time."
    ),
    "simai_aiob_backward": (
        "With AIOB the reduce-scatter of the input gradient has 0 bytes, and without sequence parallelism layers send "
        "nothing backward."
    ),
    "simai_aiob_head": "With AIOB the output head takes attention's time; the measured logit_time is not used.",
    "simai_aiob_latent": (
        "With AIOB the measured times of DeepSeek's own projections are halved, as if each were half a block."
    ),
    "simai_aiob_embedding": (
        "With AIOB the embedding's weight-gradient time is whatever was computed last: the optimizer's time in the "
        "first micro-batch, the last layer's afterwards."
    ),
    "simai_aiob_recompute": (
        "Recomputed flash attention counts twice in both directions, and with sequence parallelism the whole forward "
        "time doubles again."
    ),
    "simai_layernorm": "Without sequence parallelism the layer-norm reduction carries all parameters.",
    "simai_moe_rows": "Expert gradient rows are there for dense models too, with 0 bytes.",
    "simai_shared_experts": "DeepSeek's shared experts count both as dense and as expert parameters.",
    "simai_micro_unknown": (
        "The micro test of a collective that SimAI does not know says None (refused without --break_rules)."
    ),
}

DEVIATIONS = tuple(Deviation(name, what) for name, what in (_MEGATRON | _EXPERTS | _ZERO | _SIMAI).items())
