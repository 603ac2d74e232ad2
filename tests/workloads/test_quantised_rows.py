"""What Transformer Engine moves and gathers in FP8 is counted by hand for each linear layer of Megatron's."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from workloads.compute.operators import read_kernel
from workloads.library import WorkloadArgs, generate
from workloads.rows.calls import FLOAT8
from workloads.rows.ops import CommGroup, CommType, flops_of

TOKENS, HIDDEN, FFN, LAYERS, BATCHES = 128, 256, 512, 3, 4
MODEL: dict[str, Any] = {
    "world_size": 2, "num_layers": LAYERS, "hidden_size": HIDDEN, "ffn_hidden_size": FFN, "num_attention_heads": 8,
    "seq_length": TOKENS, "micro_batch": 1, "computation_enable": True, "swiglu": True, "vocab_size": 1024,
    "make_vocab_size_divisible_by": 1, "untie_embeddings": True,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "moe_enable": True, "num_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 2,
    "expert_tensor_parallel_size": 1, "moe_grouped_gemm": True, "moe_ffn_hidden_size": 64,
}  # fmt: skip
LOW = ("amax", "quantize", "quantize_both", "transpose")


def job(tp: int = 1, **more: Any) -> WorkloadArgs:
    split = {"tensor_model_parallel_size": tp, "enable_sequence_parallel": tp > 1}
    return WorkloadArgs(**MODEL | split | {"global_batch": BATCHES * 2 // tp} | more)


def counted(args: WorkloadArgs) -> tuple[Counter[str], Counter[str]]:
    """Bytes of an iteration by operator, and by collective of the tensor ranks."""
    moved, sent = Counter[str](), Counter[str]()
    for item, count in generate(args, dialect="framework").rows.tally_kinds().items():
        if item.additional:
            op, _, size = read_kernel(item.additional)
            moved[op] += count * size
        elif item.comm_group is CommGroup.tp_group and item.comm_group_size == 2:
            sent[f"{item.comm_type.name} {item.dtype}"] += count * int(item.comm_bytes)
    return moved, sent


def linears(tp: int) -> list[tuple[int, int, bool]]:
    """Inputs and outputs on a rank, and whether the layer is column-parallel."""
    return [(HIDDEN, 3 * HIDDEN // tp, True), (HIDDEN // tp, HIDDEN, False),
            (HIDDEN, 2 * FFN // tp, True), (FFN // tp, HIDDEN, False)]  # fmt: skip


def by_hand(recipe: str, tp: int, recompute: str) -> Counter[str]:
    """Bytes: 2 read and 1 written, or 1 for either order; a scale's byte for 32; 1 read and 1 written to turn.

    Of Transformer Engine 2.11: _LayerNormLinear and _Linear, which ask their quantizers for columns only where the
    backward pass follows (set_usage), under no_grad of _CheckpointFunction for rows alone but for weights; and
    rmsnorm_fwd (normalization.cpp): delayed scaling always has the fused kernel, whose FP8 is transposed behind it.
    """
    found: Counter[str] = Counter()

    def quantised(elements: int, *, by_rows: bool = False, normed: bool = False) -> None:
        if recipe == "delayed" and normed:
            found["transpose"] += 0 if by_rows else 2 * elements
            return
        if recipe == "tensorwise" and not normed:
            found["amax"] += 2 * elements
        scales = elements // 32 if recipe == "mxfp8" else 0
        if by_rows:
            found["quantize"] += 3 * elements + scales
        else:
            found["quantize_both"] += 4 * elements + 2 * scales

    for inner, outer, column in linears(tp):
        sent = tp > 1 and recipe != "mxfp8"
        # The norm before a column-parallel layer looks for the largest element as it writes.
        for keeps in (False, True) if recompute == "full" else (True,):
            rows = TOKENS // (tp if column else 1)
            found["norm"] += BATCHES * rows * inner * (3 if recipe == "delayed" else 4) if column else 0
            quantised(BATCHES * rows * inner, by_rows=not keeps or (sent and column), normed=column)
        quantised(BATCHES * TOKENS * outer // (1 if column else tp), by_rows=sent and not column)
        # What was gathered by rows, an input or a gradient.
        found["transpose"] += 2 * BATCHES * TOKENS * (inner if column else outer) if sent else 0
        quantised(inner * outer)
    total = Counter({op: LAYERS * size for op, size in found.items() if size})
    total["norm"] += BATCHES * TOKENS // tp * HIDDEN * 4  # in front of the head, which stays in 16 bits
    return total


@pytest.mark.parametrize("recipe", ["tensorwise", "delayed", "mxfp8"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_operands_are_quantised_once_for_each_pass_and_weights_once_an_iteration(
    recipe: str, tp: int, recompute: str
) -> None:
    plain, low = (counted(job(tp, fp8_recipe=each, activation_recompute=recompute)) for each in ("none", recipe))
    assert {op: low[0][op] for op in (*LOW, "norm") if low[0][op]} == by_hand(recipe, tp, recompute)
    assert not any(plain[0][op] for op in LOW)
    others = [op for op in plain[0] if op != "norm" and not op.startswith("gemm")]
    assert {op: low[0][op] for op in others} == {op: plain[0][op] for op in others}


@pytest.mark.parametrize(("recipe", "input_bytes", "gradient_bytes"), [
    ("tensorwise", 1, 1), ("delayed", 1, 1), ("mxfp8", 33 / 32, 2 * 33 / 32),
])  # fmt: skip
def test_what_is_gathered_is_smaller_and_what_is_summed_is_not(
    recipe: str, input_bytes: float, gradient_bytes: float
) -> None:
    plain, low = counted(job(2))[1], counted(job(2, fp8_recipe=recipe))[1]
    # Twice the input of two layers, once the gradient of two; the head's input and its embedding's stay in 16 bits.
    once = LAYERS * BATCHES * TOKENS * HIDDEN
    gathered = "all_gather_into_tensor"
    assert low[f"{gathered} {FLOAT8}"] == once * (4 * input_bytes + 2 * gradient_bytes)
    assert plain[f"{gathered} bfloat16"] - low[f"{gathered} bfloat16"] == 2 * 6 * once
    assert low["reduce_scatter_tensor bfloat16"] == plain["reduce_scatter_tensor bfloat16"]
    # Current scaling makes the largest of all ranks' elements known: for two inputs and two gradients.
    largest = 4 * LAYERS * BATCHES * 4 if recipe == "tensorwise" else 0
    assert low["all_reduce float32"] - plain["all_reduce float32"] == largest
    # The same without rows of computation.
    assert counted(job(2, fp8_recipe=recipe, computation_enable=False))[1] == low


@pytest.mark.parametrize("more", [{}, EXPERTS])
def test_products_of_layers_alone_have_operands_of_a_byte_and_the_same_flops(more: dict[str, Any]) -> None:
    args = job(**more)
    flops = []
    for each in (args, replace(args, fp8_recipe="tensorwise")):
        total = 0
        for item, count in generate(each, dialect="framework").rows.tally_kinds().items():
            if item.additional.startswith(("gemm", "experts")):
                total += count * flops_of(item)
                module = item.module or ""
                wide = module.endswith("router") or module == "output_layer" or each is args
                assert item.dtype == ("bfloat16" if wide else FLOAT8), item
        flops.append(total)
    assert flops[0] == flops[1]


def test_experts_quantise_the_tokens_that_came_and_their_gradients() -> None:
    args = job(**EXPERTS, fp8_recipe="delayed")
    its = [item for item in generate(args, dialect="framework").rows if (item.module or "").endswith(".experts")]
    ops = [item.additional.split()[0] for item in its if item.comm_type is CommType.computation]
    first = [
        "quantize_both",
        "quantize_both",
        "experts",
        "gated_activation",
        "quantize_both",
        "quantize_both",
        "experts",
    ]
    back = ["quantize_both", "experts_dgrad", "experts_wgrad"]
    assert ops[: len(first)] == first
    later = [op for op in first if op != "quantize_both"]
    assert ops.count("experts") == 2 * LAYERS * BATCHES and set(later) <= set(ops)
    assert ops[-len(back) - 1 - len(back) :] == [*back, "gated_activation_backward", *back]


@pytest.mark.parametrize(("normed", "looks"), [(True, False), (False, True)])
def test_a_narrow_projection_looks_for_the_largest_element_where_no_norm_has(normed: bool, looks: bool) -> None:
    args = job(multi_latent_attention=True, qk_layernorm=normed, fp8_recipe="tensorwise")
    rows = generate(args, dialect="framework").rows.tally_kinds()
    found = {
        item.additional.partition(" flops")[0] for item in rows if "0.self_attention.linear_kv_up" in str(item.module)
    }
    assert (f"amax tokens={TOKENS} width={args.kv_lora_rank}" in found) is looks


@pytest.mark.parametrize(("frame", "recipe"), [("Megatron", "rowwise"), ("FSDP2", "mxfp8"), ("FSDP2", "delayed")])
def test_a_recipe_of_the_other_frame_is_refused(frame: str, recipe: str) -> None:
    more: dict[str, Any] = {} if frame == "Megatron" else {"frame": frame}
    with pytest.raises(Exception, match=f"fp8_recipe is '{recipe}'; frame {frame} has none, tensorwise"):
        generate(job(**more, fp8_recipe=recipe), dialect="framework")
