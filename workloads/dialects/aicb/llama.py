"""The LLaMA that AICB's DeepSpeed frame trains: all parameters in order of use, none shared between ranks."""

from workloads.dialects.aicb import derived
from workloads.dialects.model import Linear, MockedModel
from workloads.job.parameters import WorkloadArgs


class DeepspeedAttention(MockedModel):
    def __init__(self, args: WorkloadArgs) -> None:
        hidden, inner = args.hidden_size, derived.attention_size(args)
        self.q_proj = Linear(hidden, inner, name="q_proj")
        self.k_proj = Linear(hidden, inner, name="k_proj")
        self.v_proj = Linear(hidden, inner, name="v_proj")
        self.o_proj = Linear(inner, hidden, name="o_proj")


class DeepspeedMLP(MockedModel):
    def __init__(self, args: WorkloadArgs) -> None:
        self.gate_proj = Linear(args.hidden_size, args.ffn_size, name="gate_proj")
        self.down_proj = Linear(args.ffn_size, args.hidden_size, name="down_proj")
        self.up_proj = Linear(args.hidden_size, args.ffn_size, name="up_proj")


class DeepspeedDecoderLayer(MockedModel):
    def __init__(self, args: WorkloadArgs) -> None:
        self.input_layernorm = Linear(args.hidden_size, 1, name="input_layernorm")
        self.attention = DeepspeedAttention(args)
        self.post_attn_norm = Linear(args.hidden_size, 1, name="post_attn_norm")
        self.mlp = DeepspeedMLP(args)


class DeepspeedForCausalLM(MockedModel):
    """embed_tokens, num_layers decoder layers, norm, lm_head. The vocabulary is not padded."""

    def __init__(self, args: WorkloadArgs) -> None:
        self.embed_tokens = Linear(args.vocab_size, args.hidden_size, name="embed_tokens")
        self.layers = [DeepspeedDecoderLayer(args) for _ in range(derived.layers_per_stage(args))]
        self.norm = Linear(args.hidden_size, 1, name="norm")
        self.lm_head = Linear(args.hidden_size, args.vocab_size, name="lm_head")
