"""Lists the sub-modules of one rank: what is measured, at which shape, and the section of AICB's file that it is in.

Shapes are those of a real layer (gate of swiglu, grouped queries, shared experts); MLA's narrow projections are held in
full by each tensor rank, as AICB and Transformer Engine have them. Tokens are routed evenly.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from workloads.dialects.aicb.derived import layers_per_stage
from workloads.job.parameters import WorkloadArgs

UNFUSED = "unfused"
"""Attention as three steps, each with a section of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One sub-module. sizes: what builds it, in elements and counts; section: its place in AICB's file.

    op: its operator in the database of compute times, None for none; layer: whether each layer has it.
    """

    name: str
    kind: str
    section: str
    sizes: dict[str, int] = field(default_factory=dict)
    op: str | None = None
    layer: bool = True

    @property
    def parameters(self) -> int:
        """Number of elements of its weights."""
        s = self.sizes
        if self.kind in ("linear", "experts"):
            return s.get("experts", 1) * s["k"] * s["n"] + s.get("bias", 0) * s["n"]
        if self.kind == "norm":
            return s["width"] * (1 + s["shift"])
        return {
            "embedding": s.get("vocab", 0) * s.get("width", 0),
            "router": s.get("experts", 0) * s.get("width", 0),
        }.get(self.kind, 0)

    @property
    def outputs(self) -> int:
        """Number of elements that a forward pass makes, for the estimate of memory."""
        s = self.sizes
        if self.kind in ("linear", "experts"):
            return s.get("experts", 1) * s["m"] * s["n"]
        if self.kind in ("core_qk", "core_softmax"):
            return s["batch"] * s["heads"] * s["seq"] ** 2
        if self.kind == "loss":
            return 4 * s["tokens"] * s["width"]
        if "seq" in s:
            return s["batch"] * s["seq"] * s["heads"] * (s["qk"] + s["v"]) * 3
        return s.get("tokens", 0) * max(1, s.get("topk", 1)) * s.get("width", 0)


@dataclass(frozen=True, slots=True)
class LayerShapes:
    """The numbers of one rank that several parts share."""

    args: WorkloadArgs

    @property
    def tp(self) -> int:
        return self.args.tensor_model_parallel_size

    @property
    def latent(self) -> bool:
        return self.args.multi_latent_attention or self.args.frame == "DeepSeek"

    @property
    def gated(self) -> bool:
        return self.args.swiglu or self.args.gated_linear_unit

    @property
    def tokens(self) -> int:
        """Tokens that attention and MLP see."""
        return self.args.micro_batch * self.args.seq_length

    @property
    def local_tokens(self) -> int:
        """Tokens that norms and additions see: with sequence parallelism a share."""
        return self.tokens // self.tp if self.args.enable_sequence_parallel else self.tokens

    @property
    def heads(self) -> int:
        return self.args.framework_heads // self.tp

    @property
    def groups(self) -> int:
        """Key and value heads of this rank, at least one."""
        every = self.args.framework_heads if self.latent else self.args.num_query_groups or self.args.framework_heads
        return max(1, every // self.tp)

    @property
    def head_sizes(self) -> tuple[int, int]:
        """Elements of a query's (and key's) and of a value's head."""
        args = self.args
        if self.latent:
            return args.qk_nope_dim + args.qk_rope_dim, args.v_head_dim
        size = args.kv_channels or args.hidden_size // args.framework_heads
        return size, size

    @property
    def expert_tp(self) -> int:
        return self.args.expert_tensor_parallel_size or self.tp

    @property
    def local_experts(self) -> int:
        return self.args.num_experts // self.args.expert_model_parallel_size

    @property
    def tokens_of_an_expert(self) -> int:
        """Tokens of each expert, routed evenly; at least one."""
        args = self.args
        sent = args.expert_model_parallel_size * self.expert_tp * self.tokens // self.tp * args.moe_router_topk
        return max(1, sent // args.num_experts)

    @property
    def shared_width(self) -> int:
        """Width of the shared experts on this rank, 0 for none."""
        args = self.args
        whole = args.n_shared_expert * args.ffn_size if args.frame == "DeepSeek" else args.moe_shared_expert_size or 0
        return whole // self.tp


def parts_of(args: WorkloadArgs, *, fused: bool) -> list[Part]:
    """Every part, those of a layer in the order of the forward pass. fused: whether attention is one kernel."""
    shapes = LayerShapes(args)
    hidden, local = args.hidden_size, shapes.local_tokens
    vocabulary = args.padded_vocab_size // shapes.tp
    found = [
        Part("embedding", "embedding", "Emb", {"tokens": shapes.tokens, "width": hidden, "vocab": vocabulary},
             "embedding", layer=False),
        _norm("input_norm", "layernorm", shapes, local, hidden),
        *(_latent_attention(shapes) if shapes.latent else _attention(shapes)),
        *_core(shapes, fused=fused),
        _linear("attention_output", "attention_o_row" if shapes.latent else "atten_linear", shapes,
                shapes.heads * shapes.head_sizes[1], hidden),
        _residual("attention_residual", "attention_o_row" if shapes.latent else "atten_linear", local, hidden),
        _norm("mlp_norm", "layernorm2", shapes, local, hidden),
        *(_experts(shapes) if args.moe_enable else _mlp(shapes, "mlp", args.ffn_size // shapes.tp)),
        _residual("mlp_residual", "mlp_linear_2", local, hidden),
        _norm("final_norm", "layernorm_post", shapes, local, hidden, layer=False),
        _linear("logits", "logit_time", shapes, hidden, vocabulary, layer=False, bias=False),
        Part("loss", "loss", "logit_time", {"tokens": shapes.tokens, "width": vocabulary}, "loss", layer=False),
    ]  # fmt: skip
    return [*found, _optimizer(args, shapes, found)]


def _norm(name: str, section: str, shapes: LayerShapes, tokens: int, width: int, *, layer: bool = True) -> Part:
    sizes = {"tokens": tokens, "width": width, "shift": int(shapes.args.normalization == "LayerNorm")}
    return Part(name, "norm", section, sizes, "norm", layer=layer)


def _residual(name: str, section: str, tokens: int, width: int) -> Part:
    return Part(name, "residual", section, {"tokens": tokens, "width": width}, "residual")


def _linear(
    name: str, section: str, shapes: LayerShapes, k: int, n: int, *, layer: bool = True, bias: bool = True
) -> Part:
    sizes = {"m": shapes.tokens, "k": k, "n": n, "bias": int(bias and shapes.args.add_bias_linear)}
    return Part(name, "linear", section, sizes, "gemm", layer=layer)


def _attention(shapes: LayerShapes) -> Iterator[Part]:
    size = shapes.head_sizes[0]
    width = (shapes.heads + 2 * shapes.groups) * size
    yield _linear("attention_qkv", "atten_qkv", shapes, shapes.args.hidden_size, width)


def _latent_attention(shapes: LayerShapes) -> Iterator[Part]:
    args, (qk, v) = shapes.args, shapes.head_sizes
    hidden, rank = args.hidden_size, args.q_lora_rank
    query = shapes.heads * qk
    if rank:
        yield _linear("q_down", "attention_linear_q_lora", shapes, hidden, rank)
        yield _norm("q_norm", "attention_q_column", shapes, shapes.tokens, rank)
        yield _linear("q_up", "attention_q_column", shapes, rank, query)
    else:
        yield _linear("q_up", "attention_q_column", shapes, hidden, query)
    yield _linear("kv_down", "attention_linear_kv_lora", shapes, hidden, args.kv_lora_rank + args.qk_rope_dim)
    yield _norm("kv_norm", "attention_kv_column", shapes, shapes.tokens, args.kv_lora_rank)
    width = shapes.heads * (args.qk_nope_dim + v)
    yield _linear("kv_up", "attention_kv_column", shapes, args.kv_lora_rank, width)


def _core(shapes: LayerShapes, *, fused: bool) -> Iterator[Part]:
    args, (qk, v) = shapes.args, shapes.head_sizes
    sizes = {"batch": args.micro_batch, "seq": args.seq_length, "heads": shapes.heads, "groups": shapes.groups,
             "qk": qk, "v": v, "causal": 1}  # fmt: skip
    rotated = {"rotary": int(args.position_embedding == "rope"), "latent": int(shapes.latent)}
    if shapes.latent:
        rotated |= {"nope": args.qk_nope_dim, "rope": args.qk_rope_dim, "rotary": 1}
    first = "atten_flash" if fused else "atten_core_qk"
    yield Part("attention_heads", "heads", first, sizes | rotated)
    if fused:
        yield Part("attention_core", "core", first, sizes, "attention")
        return
    yield Part("attention_scores", "core_qk", first, sizes)
    yield Part("attention_softmax", "core_softmax", "atten_core_softmax", sizes)
    yield Part("attention_context", "core_context", "atten_core_contex", sizes)


def _mlp(shapes: LayerShapes, name: str, width: int) -> Iterator[Part]:
    hidden, gated = shapes.args.hidden_size, shapes.gated
    yield _linear(f"{name}_in", "mlp_linear_1", shapes, hidden, width * (2 if gated else 1))
    yield _activation(f"{name}_activation", shapes.tokens, width, gated=gated)
    yield _linear(f"{name}_out", "mlp_linear_2", shapes, width, hidden)


def _activation(name: str, tokens: int, width: int, *, gated: bool) -> Part:
    sizes = {"tokens": tokens, "width": width, "gated": int(gated)}
    return Part(name, "activation", "mlp_gelu", sizes, "gated_activation" if gated else "activation")


def _experts(shapes: LayerShapes) -> Iterator[Part]:
    args = shapes.args
    hidden, gated, each = args.hidden_size, shapes.gated, shapes.tokens_of_an_expert
    whole = args.ffn_size if args.frame == "DeepSeek" else args.expert_size
    width, count, local = whole // shapes.expert_tp, shapes.local_experts, shapes.local_tokens
    moved = {"tokens": local, "topk": args.moe_router_topk, "width": hidden}
    yield Part("router", "router", "mlp_linear_1", moved | {"experts": args.num_experts})
    yield Part("permute", "permute", "mlp_linear_1", moved)
    inner = {"experts": count, "m": each, "k": hidden, "n": width * (2 if gated else 1)}
    yield Part("experts_in", "experts", "mlp_linear_1", inner, "experts")
    yield _activation("experts_activation", count * each, width, gated=gated)
    yield Part("experts_out", "experts", "mlp_linear_2", {**inner, "k": width, "n": hidden}, "experts")
    yield Part("unpermute", "unpermute", "mlp_linear_2", moved)
    if shapes.shared_width:
        yield from _mlp(shapes, "shared", shapes.shared_width)
        yield _residual("shared_residual", "mlp_linear_2", local, hidden)


def _optimizer(args: WorkloadArgs, shapes: LayerShapes, parts: list[Part]) -> Part:
    """Adam on what this rank updates: its layers, embedding and head, with a distributed optimizer a share of them."""
    experts = sum(part.parameters for part in parts if part.kind == "experts") * layers_per_stage(args)
    rest = sum(part.parameters * (layers_per_stage(args) if part.layer else 1) for part in parts) - experts
    if args.pipeline_model_parallel > 1:
        # The first stage has the embedding, the last one the head: this is the first.
        rest -= sum(part.parameters for part in parts if part.name in ("logits", "final_norm"))
    if args.use_distributed_optimizer:
        ranks = shapes.args.data_parallel_size
        rest = -(-rest // ranks)
        replicas = ranks * shapes.tp // (args.expert_model_parallel_size * shapes.expert_tp)
        experts = -(-experts // max(1, replicas))
    return Part("optimizer", "adam", "param_time", {"elements": max(1, rest + experts)}, "adam", layer=False)


def memory_bytes(parts: list[Part], element_bytes: int) -> int:
    """An estimate of what measuring needs: a layer's weights, gradients, activations and their gradients at once."""
    layer = sum(2 * part.parameters + 3 * part.outputs for part in parts if part.layer)
    largest = max((2 * part.parameters + 3 * part.outputs for part in parts if not part.layer), default=0)
    return element_bytes * max(layer, largest)


def op_shape(part: Part) -> dict[str, int] | None:
    """The shape of a part's operator in the database of compute times."""
    if part.op is None:
        return None
    if part.kind == "linear":
        return {axis: part.sizes[axis] for axis in ("m", "k", "n")}
    if part.kind in ("activation", "loss", "embedding", "norm", "residual"):
        return {"tokens": part.sizes["tokens"], "width": part.sizes["width"]}
    return dict(part.sizes)
