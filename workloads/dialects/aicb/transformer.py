"""AICB's Megatron and DeepSeek transformers, assembled from its layers."""

from workloads.dialects.aicb import derived
from workloads.dialects.aicb.layers import (
    MegatronColumnLinear,
    MegatronEmbedding,
    MegatronLinear,
    MegatronRowLinear,
    MoE,
    Run,
)
from workloads.dialects.layers import LayerNorm
from workloads.dialects.model import MockedModel, MockedParam, Stack
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import LogItem


class ForwardOrderBackward(MockedModel):
    """Deviation `backward_order`: inside a layer the backward pass runs the parts in forward order."""

    def backward(self) -> Block[LogItem]:
        return Block([child.backward() for child in self.child_modules()])


class MegatronAttention(ForwardOrderBackward):
    """Fused query, key, value projection and the output projection; the attention core itself has no rows."""

    name = "attention_layer"

    def __init__(self, run: Run, args: WorkloadArgs) -> None:
        inner, bias = derived.attention_size(args), args.add_bias_linear
        self.qkv = MegatronColumnLinear(run, args.hidden_size, 3 * inner, name="attention_column", bias=bias)
        self.dense = MegatronRowLinear(run, inner, args.hidden_size, name="attention_row", bias=bias)


class DeepSeekAttention(ForwardOrderBackward):
    """Multi-head latent attention: low-rank down-projections on every rank, up-projections and output split over tp.

    Deviation `q_lora_zero`: q_lora_rank 0 leaves the query without parameters.
    """

    name = "attention_layer"

    def __init__(self, run: Run, args: WorkloadArgs) -> None:
        heads, bias = derived.heads(args), args.add_bias_linear
        query_width = heads * (args.qk_nope_dim + args.qk_rope_dim)
        key_value_width = heads * (args.qk_nope_dim + args.v_head_dim)
        latent_width = args.kv_lora_rank + args.qk_rope_dim
        self.wq_a = MegatronLinear(run, args.hidden_size, args.q_lora_rank, name="attention_linear_q_lora", bias=bias)
        self.q_norm = LayerNorm(args.q_lora_rank)
        self.wq_b = MegatronColumnLinear(run, args.q_lora_rank, query_width, name="attention_q_column", bias=bias)
        self.wkv_a = MegatronLinear(run, args.hidden_size, latent_width, name="attention_linear_kv_lora", bias=bias)
        self.kv_norm = LayerNorm(args.kv_lora_rank)
        self.wkv_b = MegatronColumnLinear(
            run, args.kv_lora_rank, key_value_width, name="attention_kv_column", bias=bias
        )
        self.wo = MegatronRowLinear(run, heads * args.v_head_dim, args.hidden_size, name="attention_o_row", bias=bias)


class MegatronMlp(ForwardOrderBackward):
    """Two projections. Deviation `swiglu_gate`: the gate matrix of swiglu is never there."""

    name = "mlp_layer"

    def __init__(self, run: Run, args: WorkloadArgs) -> None:
        bias = args.add_bias_linear
        self.up = MegatronColumnLinear(run, args.hidden_size, args.ffn_size, name="mlp_column", bias=bias)
        self.down = MegatronRowLinear(run, args.ffn_size, args.hidden_size, name="mlp_row", bias=bias)


class DeepSeekMoE(ForwardOrderBackward):
    """Routed experts, then one shared-expert MLP for any number of shared experts (deviation `shared_experts`)."""

    name = "mlp_layer"

    def __init__(self, run: Run, args: WorkloadArgs) -> None:
        self.routed = MoE(run, args, fp8_dispatch=True)
        if args.n_shared_expert > 0:
            self.shared = MegatronMlp(run, args)


class TransformerLayer(ForwardOrderBackward):
    """Attention and MLP, one layer norm (deviation `layer_norms`) and the bias after attention."""

    def __init__(self, args: WorkloadArgs, attention: MockedModel, mlp: MockedModel) -> None:
        self.norm = LayerNorm(args.hidden_size)
        self.attention = attention
        self.post_attention_bias = MockedParam((args.hidden_size,), name="post_attention_bias")
        self.mlp = mlp


class TransformerModel(MockedModel):
    """Embedding, layers and an output head whose parameters count but which never runs (deviation `output_head`)."""

    def __init__(self, args: WorkloadArgs) -> None:
        run = Run.of(args)
        self.embedding = MegatronEmbedding(run, args)
        self.stacks = _stacks(run, args)
        self.head = MegatronColumnLinear(
            run, args.hidden_size, args.padded_vocab_size, name="final_column", bias=args.add_bias_linear
        )

    def forward(self) -> Block[LogItem]:
        return Block([self.embedding.forward(), *(stack.forward() for stack in self.stacks)])

    def backward(self) -> Block[LogItem]:
        return Block([*(stack.backward() for stack in reversed(self.stacks)), self.embedding.backward()])


def _stacks(run: Run, args: WorkloadArgs) -> list[Stack]:
    layers = derived.layers_per_stage(args)
    if args.frame == "DeepSeek":
        dense = min(args.n_dense_layers, layers)
        return [
            Stack(TransformerLayer(args, DeepSeekAttention(run, args), MegatronMlp(run, args)), dense),
            Stack(TransformerLayer(args, DeepSeekAttention(run, args), DeepSeekMoE(run, args)), layers - dense),
        ]
    mlp = MoE(run, args, fp8_dispatch=False) if args.moe_enable else MegatronMlp(run, args)
    return [Stack(TransformerLayer(args, MegatronAttention(run, args), mlp), layers)]
