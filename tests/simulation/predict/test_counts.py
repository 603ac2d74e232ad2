"""Weights and FLOPs of models are those that are published; the schedule is that of an independent loop."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TypeGuard

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.predict import operations
from simulation.predict.duration import Stopwatch
from simulation.predict.iteration import _pipeline, model_flops, predict
from simulation.predict.job_table import job_of, preset
from simulation.predict.machine import machines
from simulation.predict.report import data, text
from workloads.job.training_job import TrainingJob
from workloads.job.weights import layers_of, parameters, stage_sizes, stage_weights

# Parameters in 1e9 that the models' pages or papers give (safetensors' totals on the hub; GPT-3: table 2.1 says 175).
PUBLISHED = {
    "llama2_7b": 6.738, "llama3_8b": 8.030, "llama3_70b": 70.554, "llama3_405b": 405.853, "llama_30b": 32.529,
    "llama_65b": 65.286, "mixtral_8x7b": 46.703, "mixtral_8x22b": 140.621, "deepseek_v2_lite": 15.706,
    "deepseek_v2": 235.741, "deepseek_v3": 671.026, "qwen3_235b": 235.094, "gpt3_175b": 174.6,
}  # fmt: skip


def job(name: str = "llama3_8b", **changes: int | str) -> TrainingJob:
    row = {**preset(name), "gpu": "H100", "gpus": "1", **{key: str(value) for key, value in changes.items()}}
    return job_of(row, name)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_preset_has_the_published_number_of_parameters(name: str) -> None:
    assert parameters(job(name)) == pytest.approx(PUBLISHED[name] * 1e9, rel=5e-4)


@pytest.mark.parametrize("name", ["llama2_7b", "llama3_8b", "llama3_70b", "llama3_405b", "llama_65b", "gpt3_175b"])
def test_flops_are_six_for_each_weight_and_token_and_those_of_causal_attention(name: str) -> None:
    """The count of PaLM, arXiv:2204.02311, appendix B, with half of the attention's square and its backward as 2.5."""
    its = job(name, gbs=1)
    in_products = parameters(its) - its.vocab * its.hidden * (0 if its.tied else 1)
    attention = 3.5 * its.layers * 2 * its.seq**2 * its.heads * its.head_dim
    assert model_flops(its) == pytest.approx(6 * in_products * its.seq + attention, rel=0.01)


MOE = ("mixtral_8x7b", "mixtral_8x22b", "deepseek_v2_lite", "deepseek_v2", "deepseek_v3", "qwen3_235b")
# GFLOPs a token of training at 4,096 tokens: "Insights into DeepSeek-V3", arXiv:2505.09343, table 2.
PUBLISHED_GFLOPS = {"deepseek_v2": 155, "deepseek_v3": 250, "llama3_405b": 2448}


def attention_flops(its: TrainingJob) -> float:
    """Of a causal forward pass over a sample."""
    widths = 2 * its.head_dim if its.latent is None else its.latent.nope + its.latent.rope + its.latent.v
    return float(its.layers * its.seq**2 * its.heads * widths)


@pytest.mark.parametrize("name", MOE)
def test_a_token_passes_the_published_weights_but_those_of_the_experts_it_does_not_take(name: str) -> None:
    its = job(name, gbs=1)
    left_out = (its.layers - its.leading_dense) * (its.experts - its.topk) * 3 * its.hidden * its.moe_ffn
    passed = (model_flops(its) - 3.5 * attention_flops(its)) / 6 / its.seq
    embedding = its.vocab * its.hidden
    assert passed == pytest.approx(PUBLISHED[name] * 1e9 - left_out - embedding, rel=2e-3)


@pytest.mark.parametrize("name", PUBLISHED_GFLOPS)
def test_flops_of_a_token_are_the_published_ones(name: str) -> None:
    """Published with a backward pass of attention that costs twice its forward pass; flash attention's is 2.5."""
    its = job(name, gbs=1, seq=4096)
    found = model_flops(its) - 0.5 * attention_flops(its)
    assert found / its.seq == pytest.approx(PUBLISHED_GFLOPS[name] * 1e9, rel=0.011)


@pytest.mark.parametrize("layout", [{"tp": 4}, {"pp": 4}, {"cp": 2}, {"tp": 2, "pp": 2, "cp": 2}])
def test_flops_do_not_depend_on_the_layout(layout: dict[str, int | str]) -> None:
    gpus = prod(int(size) for size in layout.values())
    assert model_flops(job("llama3_8b", gbs=8, gpus=gpus, **layout)) == pytest.approx(model_flops(job(gbs=8)), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from(["llama3_8b", "deepseek_v2_lite"]))
def test_the_stages_together_hold_every_layer_and_every_weight_once(pp: int, tp: int, name: str) -> None:
    its = job(name, gpus=pp * tp, pp=pp, tp=tp)
    assert sum(stage_sizes(its)) == its.layers
    assert [sum(kind) for kind in zip(*(layers_of(its, at) for at in range(pp)), strict=True)] == [
        its.leading_dense, its.layers - its.leading_dense,
    ]  # fmt: skip
    if tp == 1:
        held = [stage_weights(its, stage) for stage in range(pp)]
        total = sum(each.shared + each.experts for each in held)
        assert total == pytest.approx(parameters(its), rel=1e-3)


def simulated_1f1b(times: list[float], batches: int) -> float:
    """When the last backward pass ends: every stage does its passes in the order of 1F1B, each as soon as it may.

    A stage's forward pass takes a third of its time.
    """
    stages = len(times)
    done: dict[tuple[str, int, int], float] = {}
    orders = []
    for stage in range(stages):
        warm = min(stages - stage - 1, batches)
        order = [("f", at) for at in range(warm)]
        for at in range(batches - warm):
            order += [("f", warm + at), ("b", at)]
        orders.append(order + [("b", at) for at in range(batches - warm, batches)])
    clock, position = [0.0] * stages, [0] * stages
    while any(position[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            while position[stage] < len(orders[stage]):
                kind, at = orders[stage][position[stage]]
                if kind == "f":
                    needed = done.get(("f", stage - 1, at), None if stage else 0.0)
                else:
                    needed = done.get(("b", stage + 1, at), None if stage < stages - 1 else 0.0)
                if needed is None:
                    break
                clock[stage] = max(clock[stage], needed) + times[stage] * (1 / 3 if kind == "f" else 2 / 3)
                done[kind, stage, at] = clock[stage]
                position[stage] += 1
    return max(clock)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 6), st.integers(0, 12), st.floats(1.0, 1.6))
def test_the_pipeline_takes_as_long_as_a_loop_over_its_passes_says(pp: int, more: int, slow: float) -> None:
    """Exact where all stages take as long; a slower last stage (the head's) changes it by less than its own excess."""
    batches = pp + more
    its = job(gpus=pp, pp=pp, gbs=batches, overlap="none", layers=12 * pp)
    watch = Stopwatch(its, machines()["H100"])
    times = [1e6] * (pp - 1) + [1e6 * slow]
    bubble, sent = _pipeline(its, watch, times)
    assert max(times) * batches + bubble == pytest.approx(simulated_1f1b(times, batches), rel=1e-6)
    assert sent.visible == pytest.approx(2 * watch.send_us(its.tokens * its.hidden * 2, 1) * (pp - 1 + batches))


def test_more_tensor_parallelism_divides_the_products_of_a_rank() -> None:
    one, four = operations.parts(job()).dense, operations.parts(job(gpus=4, tp=4)).dense
    assert one and four
    assert four.flops == pytest.approx(one.flops / 4, rel=1e-9)


def test_every_class_of_time_is_part_of_the_whole() -> None:
    found = predict(job(gpus=64, tp=4, pp=4, gbs=128), machines()["H100"])
    assert sum(found.classes.values()) == pytest.approx(found.ms, rel=1e-9)
    assert {"products", "attention", "head", "tp", "bubble", "pp", "dp", "optimizer"} <= set(found.classes)


@pytest.mark.parametrize(
    ("model", "layout"),
    [("llama3_8b", {"tp": 4, "pp": 4, "cp": 2}), ("llama3_8b", {"fsdp": 1}), ("llama3_8b", {"ddp": 1}),
     ("mixtral_8x7b", {"ep": 8, "tp": 2}), ("mixtral_8x7b", {"fsdp": 1, "seq": 512})],
)  # fmt: skip
def test_communication_is_seen_or_beside_compute_that_takes_as_long(model: str, layout: dict[str, int]) -> None:
    beside, alone = (
        predict(job(model, gpus=64, gbs=256, overlap=overlap, **layout), machines()["H100"])
        for overlap in ("1", "none")
    )
    assert beside.hidden and not alone.hidden
    for group in ("tp", "cp", "ep", "pp", "dp"):
        both = beside.classes.get(group, 0.0) + beside.hidden.get(group, 0.0)
        assert both == pytest.approx(alone.classes.get(group, 0.0))
    assert max(beside.hidden.values()) <= sum(beside.classes.values())
    assert {key: beside.classes[key] for key in ("products", "attention", "optimizer")} == {
        key: alone.classes[key] for key in ("products", "attention", "optimizer")
    }


def test_an_iteration_takes_no_more_energy_than_its_gpus_may_draw() -> None:
    usual, limited = (predict(job(gpus=8, gbs=8, power_limit_W=watts), machines()["H100"]) for watts in (700, 350))
    assert usual.most_joules == pytest.approx(8 * 700 * usual.ms / 1e3)
    assert limited.ms > usual.ms and limited.most_joules == pytest.approx(8 * 350 * limited.ms / 1e3)


def test_every_stage_has_its_time_and_memory() -> None:
    found = predict(job("llama3_70b", gpus=64, tp=4, pp=4, gbs=64), machines()["H100"])
    assert len(found.stages_ms) == len(found.stages_memory) == 4
    assert [each.stage for each in found.stages_memory] == [0, 1, 2, 3]
    assert found.memory == max(found.stages_memory, key=lambda each: each.allocated)
    said = data(found)["stages"]
    assert isinstance(said, list) and [each["ms"] for each in said] == list(found.stages_ms)
    shown = text(found)
    assert all(f"{each.reserved:.1f}" in shown for each in found.stages_memory)
    assert f"{found.most_joules / 1e6:.3g} MJ" in shown and " ms beside compute" in shown


@pytest.mark.parametrize("words", [{}, {"precision": "fp8"}, {"precision": "fp8 delayed"}, {"precision": "fp8 mxfp8"}])
def test_full_recomputation_runs_the_layers_alone_again_and_quantises_once_for_each_pass(words: dict[str, str]) -> None:
    """Transformer Engine makes copies in the other order only of what the backward pass finds."""
    once, twice = (operations.parts(job("mixtral_8x7b", recompute=each, **words)) for each in ("none", "full"))
    assert once.expert and twice.expert and (twice.embedding, twice.head) == (once.embedding, once.head)
    assert Counter(twice.expert.backward) == Counter(once.expert.forward + once.expert.backward)
    assert [each for each in twice.expert.forward if not _quantises(each)] == [
        each for each in once.expert.forward if not _quantises(each)
    ]
    first, whole = (
        sum(each.bytes for each in part.expert.forward if _quantises(each)) for part in (twice, once) if part.expert
    )
    assert first < whole if words else first == whole == 0


def _quantises(each: operations.Operation) -> TypeGuard[operations.Traffic]:
    return isinstance(each, operations.Traffic) and each.part == operations.QUANTISATION


@pytest.mark.parametrize("words", [{}, {"fsdp": "8", "gpus": "8"}])
def test_the_time_of_full_recomputation_is_that_of_the_layers_forward_pass(words: dict[str, str]) -> None:
    once, twice = (predict(job(gbs=8, recompute=each, **words), machines()["H100"]) for each in ("none", "full"))
    assert twice.classes["head"] == once.classes["head"] and twice.flops == once.flops
    assert twice.classes["attention"] == pytest.approx(once.classes["attention"] * 4.5 / 3.5, rel=0.1)
    share = twice.classes["products"] / once.classes["products"]
    assert share == pytest.approx(1 + (1 / 3 if not words else 0.25), rel=0.02)
