"""Lists the tensors that a layer keeps for its backward pass: one rule for trainer, predict and sweep.

Which they are depends on who computes: a kernel that fuses operators keeps what enters it, torch's own operators keep
what each of them needs, and checkpoints keep what their policy names. Transformer Engine's modules keep the terms of
Korthikanti et al., arXiv:2205.05198, section 4.1, without masks of dropout and with fused attention; SimuMax's B200
rows show it. torch's decoder keeps what torch itself saves of it (test_kept_tensors.py), and what one H100 allocated.
"""

from typing import NamedTuple

from workloads.job.model_states import HALF, SINGLE

NONE, FULL = "none", "full"
OPERATORS, ELEMENTWISE = "operators", "elementwise"
"""Selective recomputation: torchtitan's "op" keeps attention and every second product, our trainer's all of both."""


class Keeping(NamedTuple):
    """Says what is kept between the products. norms: bytes of an element of a norm's input; copies: whether each
    product has a copy of its norm's output; gathered: whether this is kept as sequence parallelism gathers it, and
    products as they are before it divides them; activated_gate: whether a gate's activation lies beside its product
    with the other half.
    """

    norms: int = HALF
    copies: bool = False
    gathered: bool = False
    activated_gate: bool = False


FUSED = Keeping()
"""Transformer Engine, which gathers again, and makes an activation again: one kernel for what lies between products."""
COMPILED = Keeping(gathered=True)
"""torch.compile fuses as much; what is gathered is an operator's input."""
EAGER = Keeping(gathered=True, activated_gate=True)
"""torch's operators one by one; a norm is one kernel of CUDA from torch 2.9 on (aten::_fused_rms_norm)."""
AUTOCAST = Keeping(norms=SINGLE, copies=True, gathered=True, activated_gate=True)
"""The same under autocast from torch 2.12 on, which has norms in 32 bits (pytorch/pytorch#174824): their inputs are
copied, and so are their outputs, for each product.
"""


class Experts(NamedTuple):
    """Of a token on one rank: copies that are sent to experts, elements of one, an expert's inner width; experts that
    the router scores.
    """

    copies: float
    hidden: float
    inner: float
    scores: float


class LayerWidths(NamedTuple):
    """Elements a token of a layer's tensors on one rank.

    between: of what passes between the blocks, `hidden` when gathered; compressed: of latent attention's narrow
    projections; gates: products before the activation (2: a gate and the other half), each `inner` wide; heads: numbers
    that a softmax keeps.
    """

    hidden: float
    between: float
    queries: float
    keys: float
    values: float
    attended: float
    heads: float
    inner: float
    gates: int
    compressed: float = 0.0
    experts: Experts | None = None


class DecoderSizes(NamedTuple):
    """Sizes of a dense decoder's layer."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool


def decoder_widths(model: DecoderSizes, tp: int, split: int) -> LayerWidths:
    """Widths of a dense decoder's layer on one of `tp` tensor-parallel ranks; `split`: ranks of what is between."""
    width, kv = model.heads * model.head_dim / tp, model.kv_heads * model.head_dim / tp
    gates = 2 if model.gated else 1
    return LayerWidths(
        model.hidden, model.hidden / split, width, kv, kv, width, model.heads / tp, model.ffn / tp, gates
    )


def kept(widths: LayerWidths, recompute: str = NONE, keeping: Keeping = FUSED) -> dict[str, float]:
    """Bytes a token of each tensor that a layer keeps until its backward pass, in 16 bits; `recompute`: of NONE, FULL,
    OPERATORS, ELEMENTWISE.
    """
    between = HALF * widths.between
    if recompute == FULL:
        return {"input": between}
    whole = HALF * (widths.hidden if keeping.gathered else widths.between)
    attention = {"attended": HALF * widths.attended, "softmax sums": SINGLE * widths.heads}
    if recompute == NONE:
        return {
            "norms' inputs": 2 * keeping.norms * widths.between,
            "norms' outputs": whole * (3 + widths.gates if keeping.copies else 2),
            "compressed": HALF * widths.compressed, "queries": HALF * widths.queries, "keys": HALF * widths.keys,
            "values": HALF * widths.values, **attention, **_mlp(widths, keeping),
        }  # fmt: skip
    inner = widths.experts.copies * widths.experts.inner if widths.experts else widths.inner
    some = {
        "input": between, **attention, "queries": HALF * widths.queries, "values": HALF * widths.values,
        "gate": HALF * inner, "last product": whole,
    }  # fmt: skip
    if recompute == OPERATORS:
        return some
    others = HALF * (widths.gates - 1) * inner
    return {**some, "keys": HALF * widths.keys, "attention's product": whole, "other half": others}


def _mlp(widths: LayerWidths, keeping: Keeping) -> dict[str, float]:
    gates, activated = widths.gates, keeping.activated_gate and widths.gates > 1
    found = {
        "gates": HALF * gates * widths.inner, "activated gate": HALF * widths.inner * activated,
        "activation": HALF * widths.inner,
    }  # fmt: skip
    if its := widths.experts:
        each = HALF * its.copies * its.inner
        found |= {
            "router": 2 * SINGLE * its.scores, "experts' inputs": HALF * its.copies * its.hidden,
            "experts' gates": gates * each, "experts' activated gates": each * activated, "experts' activations": each,
        }  # fmt: skip
    return found
