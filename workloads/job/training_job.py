"""Describes one training job: the model, its layout over GPUs, and the machine."""

from dataclasses import dataclass, replace

ELEMENTWISE = "selective elementwise"
"""Recomputation of our trainer: of torch's modules, what lies between the products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Widths of multi-head latent attention (DeepSeek-V2): of compressed queries and keys, and of parts of a head."""

    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    v: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job. ffn: inner width of a dense MLP; moe_ffn, shared_ffn: of an expert, of all shared experts together.

    dense_layers: leading layers without experts. sp: sequence parallelism. micro_batches: of one rank and iteration.
    fsdp: ranks of FSDP2 that hold one copy of the weights between them, 1: each rank has its own, as torch's DDP has
    it, with gradients that are views of its buckets (gradient_as_bucket_view=True); 0: Megatron-LM.
    overlap: communication runs beside compute where the framework can. grad_bytes: of an accumulated gradient.
    scaling: of FP8: one scale for a tensor ("tensorwise", "delayed": known from steps before), one for each of its rows
    ("rowwise", torchao) or for 32 elements ("mxfp8"). megatron: FSDP is Megatron-FSDP, with Megatron's own modules.
    cudnn: torch's attention is cuDNN's on Hopper, as from torch 2.11 on, not FlashAttention-2.
    window: tokens that a token attends to, itself one of them, 0: all before it; full_every: every so many layers one
    attends to all, 0: none.
    power_limit: watts a GPU may draw; memory_GBps: of its memory; 0: the GPU's own. compiled: torch.compile fuses what
    lies between products (Megatron-LM's own kernels always do). autocast: where nothing fuses it, norms are in 32 bits.
    positions: tokens of a sequence that the model's own positions reach, 0: unknown; no time depends on it.
    whole_logits: each tensor-parallel rank gathers the logits of all words, as our trainer's; else it has its part.
    """

    name: str
    gpu: str
    gpus: int
    gpus_per_node: int
    precision: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    gated: bool
    seq: int
    mbs: int
    micro_batches: int
    tp: int
    sp: bool
    pp: int
    vpp: int
    cp: int
    cp_comm: str
    dp: int
    ep: int
    fsdp: int
    experts: int
    topk: int
    moe_ffn: int
    shared_ffn: int
    dense_layers: int
    latent: LatentAttention | None
    recompute: str
    distributed_optimizer: bool
    grad_bytes: int
    overlap: bool
    fused_loss: bool
    tied: bool
    power_limit: int = 0
    memory_GBps: int = 0  # noqa: N815 - the unit's own spelling
    compiled: bool = True
    scaling: str = "tensorwise"
    megatron: bool = False
    cudnn: bool = False
    autocast: bool = False
    whole_logits: bool = False
    window: int = 0
    full_every: int = 0
    positions: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one rank of a context-parallel group."""
        return self.mbs * self.seq // self.cp

    @property
    def tokens_per_iteration(self) -> int:
        return self.mbs * self.seq * self.micro_batches * self.dp

    @property
    def full_share(self) -> float:
        """Of the layers, those that attend to all tokens."""
        if not 0 < self.window < self.seq:
            return 1.0
        return self.layers // self.full_every / self.layers if self.full_every else 0.0

    @property
    def leading_dense(self) -> int:
        """Layers without experts."""
        return self.dense_layers if self.experts else self.layers

    @property
    def replicated(self) -> bool:
        """Whether torch's DistributedDataParallel sums the gradients of whole copies."""
        return self.fsdp == 1 and self.dp * self.cp > 1

    @property
    def is_torch_decoder(self) -> bool:
        """Whether its kernels are those of the decoder that FSDP2 divides, as the dialect framework has them."""
        plain = not self.experts and self.latent is None and self.cp == self.tp == 1
        return self.of_torch and plain and self.heads * self.head_dim == self.hidden

    @property
    def of_torch(self) -> bool:
        """Whether its modules are torch's own, not Transformer Engine's."""
        return bool(self.fsdp) and not self.megatron

    @property
    def by_rows(self) -> bool:
        """Whether its products in FP8 have a scale for each row, as far as it is known how long these take."""
        return self.scaling == "rowwise" and self.precision == "fp8" and self.is_torch_decoder

    @property
    def engine_scaling(self) -> str:
        """How Transformer Engine scales FP8 in this job: it has no scale for each row, and takes one a tensor."""
        return "tensorwise" if self.scaling == "rowwise" else self.scaling

    @property
    def eager(self) -> bool:
        """Whether each of torch's operators between products reads and writes memory."""
        return self.of_torch and not self.compiled

    @property
    def words(self) -> float:
        """Words whose logits a rank has."""
        return self.vocab / (1 if self.whole_logits else self.tp)

    @property
    def split(self) -> int:
        """Ranks over which sequence parallelism divides what lies between the blocks."""
        return self.tp if self.sp else 1

    @property
    def expert_dp(self) -> int:
        """Ranks that hold the same experts: the tensor-, context- and data-parallel ranks of a stage over ep."""
        return max(1, self.dp * self.cp * self.tp // self.ep)

    @property
    def expert_shards(self) -> int:
        """Ranks of FSDP that hold one copy of their experts, tensor-parallel ranks among them; 1: each has its own."""
        return max(1, self.fsdp * self.tp // self.ep) if self.fsdp > 1 else 1

    def without_recompute(self) -> "TrainingJob":
        """The job with all its activations kept."""
        return replace(self, recompute="none")
