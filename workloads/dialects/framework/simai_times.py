"""Says how long the modules of a layer compute in SimAI text: measured AIOB times, or 1 ns as AICB has it without any.

AIOB measures a forward pass; the gradients of input and weight take as long each, as AICB's reader has it.
"""

from collections.abc import Iterable

from workloads.compute.aiob import CORE, FLASH, CompFile
from workloads.job.parameters import WorkloadArgs

PLAIN_NS = 1
ATTENTION_CORE = (*FLASH, *CORE)
EMBEDDING = "embedding_layer"
"""SimAI's name of the one layer that does not count for the pipeline's bubble."""
HEAD, LOSS, EXPERTS = "output_layer", "cross_entropy", "mlp.experts"
MEASURED = {
    EMBEDDING: ("Emb",),
    "self_attention.linear_qkv": ("layernorm", "atten_qkv"),
    "self_attention.linear_proj": (*ATTENTION_CORE, "atten_linear"),
    "self_attention.linear_q_proj": ("layernorm", "attention_q_column"),
    "self_attention.linear_q_down_proj": ("layernorm", "attention_linear_q_lora"),
    "self_attention.linear_q_up_proj": ("attention_q_column",),
    "self_attention.linear_kv_down_proj": ("attention_linear_kv_lora",),
    "self_attention.linear_kv_up_proj": ("attention_kv_column",),
    "mlp.linear_fc1": ("layernorm2", "mlp_linear_1", "mlp_gelu"),
    "mlp.linear_fc2": ("mlp_linear_2",),
    EXPERTS: ("layernorm2", "mlp_linear_1", "mlp_gelu", "mlp_linear_2"),
    HEAD: ("layernorm_post", "logit_time"),
}
"""Sections of an AIOB file by module. Router and shared experts are in those of the MLP, if at all."""
LATENT = {"self_attention.linear_proj": (*ATTENTION_CORE, "attention_o_row")}


class ModuleTimes:
    """Compute times in ns by a module's name in a layer. measured: None for 1 ns each."""

    def __init__(self, args: WorkloadArgs, measured: CompFile | None) -> None:
        self.measured = measured
        self.recompute = args.activation_recompute
        self.sections = MEASURED | (LATENT if args.multi_latent_attention else {})

    def forward(self, module: str) -> int:
        """A forward pass."""
        return PLAIN_NS if self.measured is None else self._sum(self.sections.get(module, ()))

    def input_gradient(self, module: str) -> int:
        """The gradient of the input, after what is computed again in the backward pass."""
        if self.measured is None:
            return PLAIN_NS
        sections = self.sections.get(module, ())
        again = {"full": sections, "selective": [name for name in sections if name in ATTENTION_CORE]}
        layer = module not in (EMBEDDING, HEAD)
        return self._sum(sections) + (self._sum(again.get(self.recompute, ())) if layer else 0)

    def optimizer(self) -> int:
        """The optimizer's step."""
        return PLAIN_NS if self.measured is None else self.measured.average_ns("param_time")

    def _sum(self, names: Iterable[str]) -> int:
        return 0 if self.measured is None else sum(self.measured.average_ns(name) for name in names)
