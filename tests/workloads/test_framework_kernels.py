"""Tests computation rows of the dialect `framework` against kernels that traced frameworks ran; FLOPs of models."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.workloads import trace_matrix
from tests.workloads.test_framework_dialect import check_order
from workloads import options
from workloads.cli import main
from workloads.compute.operators import OPERATORS, operator, parse_shape
from workloads.library import Workload, WorkloadArgs, generate
from workloads.rows.conversion import item_of
from workloads.rows.ops import flops_of, kernel_of
from workloads.trace.record import Trace, load

ALONE: dict[str, Any] = {
    "world_size": 1, "tensor_model_parallel_size": 1, "pipeline_model_parallel": 1, "expert_model_parallel_size": 1,
    "expert_tensor_parallel_size": None, "enable_sequence_parallel": False, "global_batch": 1, "micro_batch": 1,
    "num_layers_first_stage": None, "num_layers_last_stage": None, "moe_grouped_gemm": True,
}  # fmt: skip
# Parameters in 1e9 that a token meets, as the models' pages or papers give them; of GPT without its positions.
PUBLISHED = {
    "llama2_7b": 6.738, "llama3_8b": 8.030, "llama3_70b": 70.554, "llama3_405b": 405.853, "llama_30b": 32.529,
    "llama_65b": 65.286, "gpt3_13b": 12.85, "gpt_22b": 22.0, "gpt3_175b": 174.6, "mixtral_8x7b": 12.9,
    "mixtral_8x22b": 39.1, "qwen3_235b": 22.0,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "world_size": 8, "tensor_model_parallel_size": 2, "num_layers": 2, "hidden_size": 256, "num_attention_heads": 8,
    "seq_length": 128, "global_batch": 16, "enable_sequence_parallel": True, "computation_enable": True, "swiglu": True,
}  # fmt: skip
MOE: dict[str, Any] = {"moe_enable": True, "num_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 4}


@cache
def recorded() -> list[Trace]:
    return list(load(trace_matrix.FOLDER / "kernels.jsonl.xz"))


def test_every_recorded_kernel_and_call_is_the_rules_in_order() -> None:
    check_order(recorded(), "micro_batch")


def test_recorded_jobs_have_every_framework_and_every_kind_of_kernel() -> None:
    jobs = [trace.job for trace in recorded()]
    assert {(job.frame, job.stage if job.frame == "DeepSpeed" else 0) for job in jobs} >= {
        ("Megatron", 0), ("FSDP2", 0), ("DeepSpeed", 1), ("DeepSpeed", 2), ("DeepSpeed", 3),
    }  # fmt: skip
    assert {job.activation_recompute for job in jobs} == {"none", "selective", "full"}
    assert (
        {job.multi_latent_attention for job in jobs} == {job.enable_sequence_parallel for job in jobs} == {True, False}
    )
    kinds = Counter(op.kernel.partition(" ")[0] for trace in recorded() for op in trace.ops if op.kernel)
    # Grouped products are one kernel where Megatron has Transformer Engine alone.
    # Parts of attention are those of context parallelism, which has records of its own.
    unseen = {name for name in OPERATORS if name.startswith(("experts", "attention_part"))}
    # FP8 and windows have tests of their own (test_framework_rows_of_rules.py).
    unseen |= {"attention_decode", "softmax", "attention_window", "attention_window_backward"}
    unseen |= {"amax", "quantize", "quantize_both", "transpose", "rescale"}
    assert set(kinds) == set(OPERATORS) - unseen and sum(kinds.values()) > 10_000


def test_flops_and_bytes_of_a_row_are_those_of_its_shape() -> None:
    for trace in recorded():
        for op in trace.ops:
            if op.kernel and not op.kernel.startswith("gemm_wgrad"):
                item = item_of(op)
                kernel = kernel_of(item)
                assert kernel is not None
                shape, known = parse_shape(*kernel), operator(kernel.op)
                element = 4 if op.dtype == "float32" else 2
                assert (flops_of(item), op.bytes) == (known.flops(shape), known.elements(shape) * element)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_flops_are_six_for_each_published_weight_and_token_and_those_of_causal_attention(name: str) -> None:
    """The count of PaLM, arXiv:2204.02311, appendix B, with half of the attention's square and its backward as 2.5."""
    args = options.resolve({**ALONE, "computation_enable": True}, name, "csv", "framework")
    rows = generate(args, dialect="framework").rows.tally_kinds()
    products = ("gemm", "experts", "attention")
    found = sum(flops_of(item) * count for item, count in rows.items() if item.additional.startswith(products))
    head = args.kv_channels or args.hidden_size // args.framework_heads
    attention = 3.5 * args.num_layers * 2 * args.seq_length**2 * args.framework_heads * head
    table = args.vocab_size * args.hidden_size if args.untie_embeddings else 0
    assert found == pytest.approx(6 * (PUBLISHED[name] * 1e9 - table) * args.seq_length + attention, rel=0.01)


def flops(args: WorkloadArgs) -> int:
    return sum(flops_of(item) * count for item, count in generate(args, dialect="framework").rows.tally_kinds().items())


def test_grouped_experts_compute_what_single_ones_do() -> None:
    single = WorkloadArgs(**SMALL | MOE)
    rows = generate(replace(single, moe_grouped_gemm=True), dialect="framework").rows.tally_kinds()
    assert flops(replace(single, moe_grouped_gemm=True)) == flops(single)
    assert {item.additional.partition(" ")[0] for item in rows} >= {"experts", "experts_dgrad", "experts_wgrad"}


def test_experts_compute_as_many_tokens_as_the_routing_gives_them() -> None:
    skewed = generate(WorkloadArgs(**SMALL | MOE, routing="zipf:1.2"), dialect="framework").rows.tally_kinds()
    rows = {
        int(found[1])
        for item in skewed
        if "experts.1.linear_fc1" in (item.module or "") and (found := re.match(r"gemm m=(\d+)", item.additional))
    }
    balanced = 128 // 2 * 2 * 8 // 8
    assert rows and balanced not in rows


@pytest.mark.parametrize(("recompute", "times"), [("none", 3), ("selective", 3), ("full", 4)])
def test_recomputation_repeats_what_it_says(recompute: str, times: int) -> None:
    args = WorkloadArgs(**SMALL, activation_recompute=recompute)
    counts: Counter[str] = Counter()
    for item, count in generate(args, dialect="framework").epoch(1).rows.tally_kinds().items():
        if ".layers." in (item.module or ""):
            counts[item.additional.partition(" ")[0]] += count
    products = sum(counts[name] for name in ("gemm", "gemm_dgrad", "gemm_wgrad"))
    layers = args.num_layers * args.num_microbatches
    assert products == layers * 4 * times
    assert counts["attention"] == layers * (1 if recompute == "none" else 2)


def test_a_decoding_step_attends_to_all_tokens_before_it() -> None:
    args = WorkloadArgs(**SMALL | {"enable_sequence_parallel": False}, phase="decode", micro_batch=2)
    (kernel,) = {
        kernel for item in generate(args, dialect="framework").rows
        if (kernel := kernel_of(item)) and kernel.op.startswith("attention")
    }  # fmt: skip
    assert kernel == ("attention_decode", "batch=2 context=128 heads=4 groups=4 qk=32 v=32")


def test_rows_survive_a_file_and_are_filled_with_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, timed = tmp_path / "plain.csv", tmp_path / "timed.csv"
    words = (
        "generate --world_size 8 --tp 2 --sp --num_layers 2 --hidden_size 4096 --global_batch 8 --computation_enable"
    )
    assert main([*words.split(), "--output", str(plain)]) == 0
    made, args = Workload.load(plain)
    assert args is not None and list(made) == list(generate(args, dialect="framework"))
    assert main(["compute", "fill", str(plain), "--output", str(timed), "--device", "H100"]) == 0
    kernels = [item for item in Workload.load(timed)[0] if item.additional]
    assert kernels and all(item.elapsed_time for item in kernels)
    assert main(["show", str(plain)]) == 0
    assert f"computation flops: {flops(args)}" in capsys.readouterr().out
