"""What AICB demands and Megatron does not, or otherwise: each rule stands in its dialect, none in the common rules."""

from typing import Any

import pytest

from workloads import dialects
from workloads.job import rules
from workloads.library import WorkloadArgs, generate

BASE: dict[str, Any] = {
    "world_size": 16, "tensor_model_parallel_size": 2, "pipeline_model_parallel": 2, "num_layers": 4,
    "hidden_size": 256, "num_attention_heads": 8, "seq_length": 128, "global_batch": 16,
}  # fmt: skip
MOE: dict[str, Any] = {
    "moe_enable": True, "num_experts": 8, "moe_router_topk": 2, "enable_sequence_parallel": True,
}  # fmt: skip
WIDE = MOE | {"expert_model_parallel_size": 8}
ALONE = {"tensor_model_parallel_size": 1, "enable_sequence_parallel": False}
CASES: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "ep | dp; ep may exceed dp where experts are not split": (
        WIDE | {"expert_tensor_parallel_size": 1}, "must divide the 4 data-parallel ranks", None,
    ),
    "ep exceeds dp with experts split as all else": (
        WIDE, "must divide the 4 data-parallel ranks", "must be a multiple of expert_tensor_parallel_size *",
    ),
    "MoE needs sequence parallelism; only with tp": (
        MOE | ALONE, "--moe_enable needs --enable_sequence_parallel", None,
    ),
    "MoE with tp needs it in both": (
        MOE | {"enable_sequence_parallel": False}, "needs --enable_sequence_parallel", "Megatron demands it",
    ),
    "cp is ignored; divides": ({"context_parallel_size": 2}, "splits nothing over context ranks", None),
    "cp is ignored; needs chunks": (
        {"context_parallel_size": 2, "seq_length": 126}, "splits nothing over context ranks", "must be a multiple of 4",
    ),
    "layers % pp; uneven ends": (
        {"num_layers": 5, "num_layers_first_stage": 3}, "num_layers 5 must be a multiple of", None,
    ),
    "layers % pp without uneven ends": (
        {"num_layers": 5}, "num_layers 5 must be a multiple of", "must be divided evenly over 2 pipeline stages",
    ),
    "swiglu width": (
        {"hidden_size": 16, "swiglu": True}, "swiglu makes the MLP width 0", "the MLP width (ffn_hidden_size) 0 must",
    ),
    "heads = layers; a head per 128": (
        {"num_attention_heads": None, "num_layers": 6}, "num_attention_heads 6 (not given, so one per layer)", None,
    ),
    "heads over tp; not over the sequence": ({"seq_length": 127}, "seq_length 127 must be a multiple", None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_dialect_has_the_rules_of_its_program(name: str) -> None:
    values, aicb, framework = CASES[name]
    args = WorkloadArgs(**BASE | values)
    assert rules.check(args) == []
    for dialect, complaint in (("aicb", aicb), ("framework", framework)):
        found = [problem.text for problem in dialects.get(dialect).problems(args, "csv", frozenset(values))]
        if complaint is None:
            assert found == [], dialect
        else:
            assert any(complaint in text for text in found), (dialect, found)


@pytest.mark.parametrize(
    "values",
    [
        {"num_query_groups": 2},
        {"untie_embeddings": True},
        {"position_embedding": "learned_absolute"},
    ],
)
def test_groups_ties_and_positions_are_megatrons(values: dict[str, Any]) -> None:
    """Grouped queries, tied word vectors and positions change the framework's bytes; AICB has none of them."""
    plain, other = WorkloadArgs(**BASE), WorkloadArgs(**BASE | values)
    assert generate(plain).total_bytes != generate(other).total_bytes
    assert list(generate(plain, dialect="aicb")) == list(generate(other, dialect="aicb"))
    assert set(values) <= dialects.get("aicb").without_effect(other, "csv")
