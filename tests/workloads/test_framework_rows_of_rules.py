"""Rows that no traced framework shows: FP8 against torchao, windows against a count of pairs, DeepEP against draws."""

import importlib
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workloads.cli import main
from workloads.compute.operators import read_kernel
from workloads.dialects.framework import float8
from workloads.dialects.framework.effects import without_effect
from workloads.dialects.framework.experts import chance_to_meet
from workloads.dialects.framework.kernels import Kernels
from workloads.formats.workload import Workload
from workloads.library import WorkloadArgs, generate
from workloads.rows.calls import FLOAT8, Call
from workloads.rows.ops import flops_of

TOKENS, INNER, OUTER = 64, 48, 32
MODEL: dict[str, Any] = {
    "world_size": 8, "num_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "seq_length": 128,
    "global_batch": 8, "computation_enable": True, "swiglu": True,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "moe_enable": True, "num_experts": 32, "moe_router_topk": 4, "expert_model_parallel_size": 8,
    "expert_tensor_parallel_size": 1, "moe_grouped_gemm": True,
}  # fmt: skip


class Torchao(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own class is untyped
    """Notes what torchao's linear layer asks of a GPU, in the words of the rows; shapes as they lie in memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        narrow: Any = importlib.import_module("torchao.float8.float8_training_tensor").Float8TrainingTensor
        if any(isinstance(each, narrow) for each in args):
            with self:
                return narrow.__torch_dispatch__(func, types, args, kwargs or {})
        result, name = func(*args, **(kwargs or {})), func._schema.name.removeprefix("aten::")
        if name in ("max", "amax"):
            self._note("amax", args[0])
        elif name == "_to_copy" and result.dtype.itemsize == 1:
            self._note("quantize", args[0])
        elif name in ("contiguous", "clone") and result.dtype.itemsize == 1:
            self._note("transpose", args[0])
        elif name == "_scaled_mm":
            self.seen.append(("gemm", (*args[0].shape, args[1].shape[1])))
        elif name == "mul_":
            self._note("rescale", args[0])
        return result

    def _note(self, op: str, of: torch.Tensor) -> None:
        shape = tuple(of.shape)
        self.seen.append((op, shape if of.is_contiguous() else shape[::-1]))


def stated(calls: list[Call]) -> list[tuple[str, tuple[int, ...]]]:
    found = [read_kernel(call.kernel) for call in calls]
    return [(op.partition("_")[0], tuple(shape.values())) for op, shape, _ in found]


@pytest.mark.torch
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_a_layer_in_fp8_computes_what_torchao_calls_in_its_order(recipe: str) -> None:
    torchao: Any = importlib.import_module("torchao.float8")
    model = torch.nn.Sequential(torch.nn.Linear(INNER, OUTER, bias=False, dtype=torch.bfloat16, device="meta"))
    torchao.convert_to_float8_training(model, config=torchao.Float8LinearConfig.from_recipe_name(recipe))
    tokens = torch.empty(TOKENS, INNER, dtype=torch.bfloat16, device="meta", requires_grad=True)
    with Torchao() as noted:
        result = model(tokens)
        ahead = len(noted.seen)
        result.backward(torch.ones_like(result))
    args = WorkloadArgs(frame="FSDP2", computation_enable=True, fp8_recipe=recipe)
    forward, backward = float8.linear(Kernels(args, TOKENS), "layer", INNER, OUTER)
    assert stated(forward) == noted.seen[:ahead]
    assert stated(backward) == noted.seen[ahead:]


@pytest.mark.parametrize(("recipe", "more"), [("tensorwise", 0), ("rowwise", 1)])
def test_fp8_halves_the_operands_of_products_and_moves_the_bytes_of_its_casts(recipe: str, more: int) -> None:
    wide = WorkloadArgs(**MODEL, frame="FSDP2", untie_embeddings=True)
    counts: dict[str, Counter[str]] = {}
    for name, args in (("wide", wide), ("narrow", replace(wide, fp8_recipe=recipe))):
        counts[name] = Counter()
        for item, count in generate(args, dialect="framework").rows.tally_kinds().items():
            if item.additional:
                op, shape, moved = read_kernel(item.additional)
                counts[name][op] += count
                counts[name]["flops"] += count * flops_of(item) * op.startswith(("gemm", "attention"))
                elements = shape.get("m", 0) * shape.get("k", 0) + shape.get("k", 0) * shape.get("n", 0)
                if op.startswith("gemm") and item.module != "lm_head":
                    size = 1 if name == "narrow" else 2
                    assert moved == elements * size + 2 * shape["m"] * shape["n"]
                    assert item.dtype == (FLOAT8 if name == "narrow" else "bfloat16")
                if op == "quantize":
                    assert moved == 3 * shape["tokens"] * shape["width"]
    assert counts["wide"]["flops"] == counts["narrow"]["flops"]
    products, its = 7 * MODEL["num_layers"], counts["narrow"]
    assert its["amax"] == its["quantize"] == 6 * products and its["transpose"] == 3 * products
    assert its["rescale"] == 2 * products * more
    assert not {"amax", "quantize", "transpose", "rescale"} & set(counts["wide"])


@pytest.mark.parametrize(("window", "every"), [(48, 0), (1, 0), (128, 0), (48, 2)])
@pytest.mark.parametrize(("frame", "stage"), [("Megatron", 3), ("FSDP2", 3), ("DeepSpeed", 2), ("DeepSpeed", 3)])
def test_attention_with_a_window_counts_the_pairs_that_a_loop_counts(
    frame: str, stage: int, window: int, every: int
) -> None:
    args = WorkloadArgs(**MODEL, frame=frame, stage=stage, sliding_window=window, full_attention_every=every)
    assert "sliding_window" not in without_effect(args)
    tokens, layers = MODEL["seq_length"], MODEL["num_layers"]
    found: Counter[str] = Counter()
    for item, count in generate(args, dialect="framework").rows.tally_kinds().items():
        op = item.additional.partition(" ")[0]
        if op.startswith("attention"):
            found[op.removesuffix("_backward")] += count * flops_of(item)
    pairs = sum(min(at + 1, window) for at in range(tokens))
    full = layers if window >= tokens else layers // every if every else 0
    each = 3.5 * 2 * MODEL["hidden_size"] * 2
    assert found["attention"] == full * each * tokens**2 / 2
    # The rules count a token's pair with itself by half.
    assert found["attention_window"] == pytest.approx((layers - full) * each * pairs, rel=0.01)


def test_a_token_goes_by_deepep_once_to_each_rank_that_has_one_of_its_experts() -> None:
    args = WorkloadArgs(**MODEL | EXPERTS, moe_token_dispatcher="deepep")
    draw = random.Random(1)
    tokens, ranks, topk = 20_000, 8, EXPERTS["moe_router_topk"]
    met = sum(len({expert // 4 for expert in draw.sample(range(32), topk)}) for _ in range(tokens)) / tokens
    assert chance_to_meet(32, ranks, topk) * ranks == pytest.approx(met, rel=0.01)
    # A rank for each expert: as many ranks as choices. One rank: each token once.
    assert chance_to_meet(8, 8, topk) * 8 == pytest.approx(topk) and chance_to_meet(8, 1, topk) == 1

    sent = {}
    for name in ("deepep", "alltoall"):
        rows = generate(replace(args, moe_token_dispatcher=name), dialect="framework").rows.tally_kinds()
        sizes = [(item.msg_size, count) for item, count in rows.items() if item.comm_type.name == "all_to_all_single"]
        sent[name] = max(size for size, _ in sizes if size)
    token = 2 * MODEL["hidden_size"]
    assert sent["alltoall"] == 128 * topk * token
    assert sent["deepep"] == pytest.approx(128 * met * (token + topk * (8 + 4)), rel=0.01)


def test_deepep_sends_a_part_of_the_tokens_from_each_tensor_rank() -> None:
    base = WorkloadArgs(**MODEL | EXPERTS, moe_token_dispatcher="deepep")
    split = replace(base, tensor_model_parallel_size=2, enable_sequence_parallel=True)
    largest = []
    for args in (base, split):
        rows = generate(args, dialect="framework").rows.tally_kinds()
        largest.append(max(item.msg_size or 0 for item in rows if item.comm_type.name == "all_to_all_single"))
    assert largest[0] == pytest.approx(2 * largest[1], rel=0.03)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hidden_dropout 1", "hidden_dropout is 1.0; it must be from 0 to below 1"),
        ("--sliding_window 0", "sliding_window is 0; it must be at least 1"),
        ("--sliding_window 8 --cp 2", "context-parallel ranks see all tokens here"),
        ("--full_attention_every 2", "needs sliding_window"),
        ("--frame DeepSpeed --sliding_window 0", "sliding_window is 0; it must be at least 1"),
        ("--frame FSDP2 --fp8_recipe blockwise", "blockwise"),
        ("--frame FSDP2 --fp8_recipe rowwise --tp 2 --fsdp_units torchtitan --untie_embeddings --swiglu", "fp8_recipe"),
        ("--moe_enable --num_experts 8 --ep 2 --tp 2 --sp --moe_token_dispatcher deepep", "over 2 tensor ranks"),
        ("--moe_enable --num_experts 8 --ep 2 --etp 1 --moe_token_dispatcher deepep --routing zipf:1", "by expert"),
    ],
)
def test_what_no_rule_states_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    started = main(["generate", "--world_size", "8", "--global_batch", "8", "--computation_enable", *words.split()])
    assert started == 2 and said in capsys.readouterr().err


def test_rows_in_fp8_survive_a_file_and_get_times_of_fp8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "generate --world_size 8 --num_layers 1 --hidden_size 4096 --global_batch 8 --computation_enable --frame FSDP2"
    )
    shortest = {}
    for recipe in ("none", "tensorwise"):
        plain, timed = tmp_path / f"{recipe}.csv", tmp_path / f"{recipe}_timed.csv"
        assert main([*words.split(), "--fp8_recipe", recipe, "--output", str(plain)]) == 0
        made, args = Workload.load(plain)
        assert args is not None and args.fp8_recipe == recipe
        assert list(made) == list(generate(args, dialect="framework"))
        assert main(["compute", "fill", str(plain), "--output", str(timed), "--device", "H100"]) == 0
        products = [item for item in Workload.load(timed)[0] if item.module == "layers.0.mlp.up_proj"]
        shortest[recipe] = min(item.elapsed_time or 0 for item in products if item.additional.startswith("gemm "))
    assert 0 < shortest["tensorwise"] < 0.7 * shortest["none"]
    capsys.readouterr()
