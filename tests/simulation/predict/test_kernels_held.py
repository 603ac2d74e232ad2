"""Rules for kernels and links are held against kernels that others measured, and that no rule was taken from."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from functools import cache
from math import log
from statistics import median

import pytest

from simulation.analytical.nvlink_times import nvlink_us
from simulation.predict import duration
from simulation.predict.attention import CUDNN_BACKWARD, FLASH_2, WIDE_BACKWARD
from simulation.predict.duration import Stopwatch
from simulation.predict.iteration import predict
from simulation.predict.machine import MEMORY_SHARE, NIC_SHARE, Factors, machines
from simulation.predict.operations import EXPERTS, QUANTISATION, Attention, Part, Product, Traffic, parts
from tests.simulation.predict.accuracy import DATA, held, own_kernels
from tests.simulation.predict.test_counts import job
from workloads.compute.operators import OPERATORS

PASSES = DATA / "attention_passes.csv"
SHARES = (0.5, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)


def longer_backward(*, on_b200: bool, wide: bool) -> list[float]:
    """How many times longer a FLOP takes backward: cuDNN on H200 and GB200, TransformerEngine on B200 (SimuMax)."""
    found = []
    for row in csv.DictReader(PASSES.read_text(encoding="utf-8").splitlines()):
        qk, v = int(row["qk"]), int(row["v"])
        if (row["gpu"] == "B200", qk > v) == (on_b200, wide):
            flops = (3 * qk + 2 * v) / (qk + v)
            found.append(float(row["backward_ms"]) / float(row["forward_ms"]) / flops)
    return found


@pytest.mark.parametrize(("wide", "times"), [(False, CUDNN_BACKWARD), (True, WIDE_BACKWARD)])
def test_attention_takes_as_much_longer_backward_as_cudnn_and_as_a_b200_that_no_rule_saw(
    wide: bool, times: float
) -> None:
    seen, unseen = (longer_backward(on_b200=on_b200, wide=wide) for on_b200 in (False, True))
    assert len(seen) == 10 and len(unseen) >= 6
    assert times == pytest.approx(median(seen), abs=0.01)
    assert times == pytest.approx(median(unseen), abs=0.03)


@pytest.mark.parametrize(
    ("gpu", "qk", "fsdp", "times"),
    [("B200", 128, 0, 2.5 * CUDNN_BACKWARD), ("B200", 192, 0, 832 / 320 * WIDE_BACKWARD),
     ("B200", 128, 1, 2.5 * CUDNN_BACKWARD), ("H100", 128, 1, 2.5 * FLASH_2[1] / FLASH_2[0])],
)  # fmt: skip
def test_a_backward_pass_takes_its_flops_and_the_lower_rate(gpu: str, qk: int, fsdp: int, times: float) -> None:
    """Three products as wide as queries and two as values; on Hopper torch's own kernels have rates of their own."""
    watch = Stopwatch(job(gpu=gpu, gpus=8, fsdp=fsdp), machines()[gpu])
    ahead, back = (watch.part(Part((Attention(4096, 128, qk, 128, each),), ()))["attention"] for each in (False, True))
    assert back / ahead == pytest.approx(times)


def test_a_framework_of_megatron_has_its_own_modules_however_weights_are_sharded() -> None:
    """Llama-3 8B by Megatron-FSDP: the time of a micro-batch is Megatron's, and no buffers are copied."""
    torch, megatron, plain = (
        predict(
            job(gpu="H100", gpus=8, gbs=128, precision="FP8-CS", fsdp=fsdp, framework=framework), machines()["H100"]
        )
        for fsdp, framework in ((1, ""), (1, "Megatron-Bridge, NeMo 26.04"), (0, ""))
    )
    assert megatron.stages_ms == plain.stages_ms
    assert megatron.classes["attention"] < 0.75 * torch.classes["attention"]
    assert megatron.classes["memory-bound"] == plain.classes["memory-bound"] < torch.classes["memory-bound"]


@pytest.mark.parametrize(
    ("gpu", "text", "share"),
    [
        # Bytes of an element: 2 read and 1 written in either order; on Blackwell one order will do.
        ("H100", "FP8", 4), ("B200", "FP8", 3), ("B200", "FP8 delayed", 3), ("B200", "MXFP8", 4 + 1 / 16),
        ("B200", "NVFP4", 2 * 2 + 2 * 0.5625),
    ],
)  # fmt: skip
def test_quantisation_is_priced_by_the_bytes_of_its_scaling(gpu: str, text: str, share: float) -> None:
    its = parts(job(gpu=gpu, gpus=1, precision=text)).dense
    assert its is not None
    found = [each for each in (*its.forward, *its.backward) if isinstance(each, Traffic)]
    moved = sum(each.bytes for each in found if each.part == QUANTISATION)
    tokens, hidden, ffn, keys = 8192, 4096, 14336, 1024
    inputs, gradients = hidden + hidden + hidden + ffn, hidden + 2 * keys + hidden + 2 * ffn + hidden
    # Scales of tensors at present look for the largest element first, but for what comes from a norm, which writes FP8
    # itself under scales of the steps before.
    largest = 2 * (inputs + gradients - 2 * hidden) if text == "FP8" else 0
    written = 2 * hidden if text == "FP8 delayed" else 0
    assert moved == pytest.approx(tokens * (share * (inputs + gradients - written) + largest), rel=1e-3)
    assert all(each.quantised for each in its.forward if isinstance(each, Product))


@pytest.mark.parametrize(
    ("gpu", "text", "share"),
    [("H100", "FP8", 6), ("H100", "FP8 delayed", 4), ("B200", "FP8", 5), ("B200", "FP8 delayed", 3),
     ("B200", "MXFP8", 4 + 1 / 16), ("B200", "NVFP4", 5.125)],
)  # fmt: skip
def test_weights_of_products_are_quantised_once_an_iteration_by_the_bytes_of_their_scaling(
    gpu: str, text: str, share: float
) -> None:
    its = {word: predict(job("mixtral_8x7b", gpu=gpu, gpus=8, ep=8, precision=word), machines()[gpu]) for word in
           ("bf16", text)}  # fmt: skip
    took = its[text].classes["optimizer"] - its["bf16"].classes["optimizer"]
    # 32 layers of attention, 8 groups of keys and values, and an expert of each; no router, no norm, no word vectors.
    elements = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert took == pytest.approx(share * elements / machines()[gpu].memory_GBps / MEMORY_SHARE / 1e6, rel=1e-6)


@pytest.mark.parametrize("precision", ["FP8", "MXFP8", "NVFP4"])
def test_a_router_stays_in_16_bits_forward_and_backward(precision: str) -> None:
    its = parts(job("mixtral_8x7b", gpu="B200", gpus=8, ep=8, precision=precision)).expert
    assert its is not None
    of_router = [each for each in (*its.forward, *its.backward) if isinstance(each, Product) and 8 in each[1:4]]
    assert len(of_router) == 3
    low, wide = (Stopwatch(job(gpu="B200", precision=word), machines()["B200"]) for word in (precision, "bf16"))
    for each in of_router:
        assert low.part(Part((each,), ())) == wide.part(Part((each,), ()))


@pytest.mark.parametrize("gpu", ["H200", "GB200"])
def test_passes_of_cudnn_take_what_they_were_measured_to_take(gpu: str) -> None:
    """Backward on Hopper, where a forward pass is as the tables say; both on GB200."""
    rows = csv.DictReader(PASSES.read_text(encoding="utf-8").splitlines())
    watch = Stopwatch(job(gpu=gpu, gpus=8), machines()[gpu])
    compared = 0
    for row in (row for row in rows if row["gpu"] == gpu):
        batch, seq, heads, qk, v = (int(row[key]) for key in ("batch", "seq", "heads", "qk", "v"))
        for backward in (False, True) if gpu == "GB200" else (True,):
            its = watch.part(Part((Attention(seq, heads * batch, qk, v, backward),), ()))["attention"]
            measured = float(row["backward_ms" if backward else "forward_ms"])
            assert its / 1e3 == pytest.approx(measured, rel=0.002)
            compared += 1
    assert compared == (20 if gpu == "GB200" else 10)


def test_backward_passes_of_torch_on_our_h200_are_those_of_cudnn_that_no_row_of_ours_was_taken_for() -> None:
    """Where each multiprocessor has work: 8 heads and more; fewer than the tables have take no less."""
    found = own_kernels()
    assert median(abs(ratio - 1) for ratio in found["attention, backward"]) < 0.06
    for kernel in ("attention", "attention, backward"):
        assert all(0.85 < ratio < 1.25 for ratio in found[kernel]), found[kernel]


@pytest.mark.parametrize(("attention", "times"), [("", FLASH_2[0]), ("torch, cuDNN", 1.0), ("TE fused (cuDNN)", 1.0)])
def test_torch_has_flash_attention_2_on_hopper_unless_a_row_says_cudnn(attention: str, times: float) -> None:
    its = job(gpu="H100", gpus=8, fsdp=1, attention=attention)
    tables = Stopwatch(job(gpu="H100", gpus=8), machines()["H100"])
    part = Part((Attention(4096, 128, 128, 128, False),), ())
    mine = Stopwatch(its, machines()["H100"]).part(part)["attention"]
    assert mine == pytest.approx(times * tables.part(part)["attention"])


@pytest.mark.parametrize("gpu", ["H100", "B200"])
@pytest.mark.parametrize("window", [128, 8192])
def test_attention_with_a_window_takes_what_vllms_kernels_were_measured_to_take(gpu: str, window: int) -> None:
    """From the tables of aiconfigurator-core 0.12.0, heads of 128; no row of these is in the shipped tables."""
    found = []
    for row in csv.DictReader((DATA / "attention_windows.csv").read_text(encoding="utf-8").splitlines()):
        if (row["gpu"], int(row["window"])) == (gpu, window):
            its = Attention(int(row["seq"]), int(row["heads"]), 128, 128, False, window, 0.0)
            watch = Stopwatch(job(gpu=gpu, gpus=8), machines()[gpu])
            found.append(watch.part(Part((its,), ()))["attention"] / float(row["us"]))
    assert len(found) == 40 and 0.75 < median(found) < 1.35, sorted(found)


def test_a_window_has_the_flops_that_the_dialect_says_and_layers_without_are_counted_apart() -> None:
    shape = {"batch": 2, "seq": 8192, "heads": 32, "groups": 8, "qk": 128, "v": 128}
    flops, whole = OPERATORS["attention_window"].flops({**shape, "window": 1024}), OPERATORS["attention"].flops
    assert Attention(8192, 64, 128, 128, False, 1024, 0.0).flops == flops
    assert Attention(8192, 64, 128, 128, False, 1024, 0.25).flops == 0.25 * whole({**shape, "causal": 1}) + 0.75 * flops

    def its(**more: int | str) -> tuple[float, float]:
        found = predict(job("llama3_8b", gpus=8, seq=32768, **more), machines()["H100"])
        return found.classes["attention"], found.flops

    every, fourth, none = its(sliding_window=1024), its(sliding_window=1024, full_attention_every=4), its()
    for at in (0, 1):
        assert fourth[at] == pytest.approx(0.75 * every[at] + 0.25 * none[at])
    assert every[0] < 0.2 * none[0] and its(sliding_window=32768) == none
    assert its(sliding_window=32768, cp=2) == its(cp=2)
    one = Attention(64, 8, 128, 128, False, 32, 0.0)
    watch = Stopwatch(job(gpus=8), machines()["H100"])
    assert watch.part(Part((one,), ())) == watch.part(Part((one._replace(full=1.0),), ()))


@cache
def experts() -> dict[tuple[int, int], dict[str, float]]:
    """Microseconds of the six products of a layer's experts on B200, by experts and tokens of each, as SimuMax measured
    them (MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json, group_matmul), beside ours.
    """
    found: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: {"measured": 0.0, "predicted": 0.0})
    watch = Stopwatch(job(gpu="B200", gpus=8), machines()["B200"])
    for row in csv.DictReader((DATA / "experts_b200.csv").read_text(encoding="utf-8").splitlines()):
        count, tokens, outer, inner = (int(row[key]) for key in ("experts", "tokens", "out", "in"))
        product = {
            "forward": Product(EXPERTS, tokens, outer, inner, count),
            "input gradient": Product(EXPERTS, tokens, inner, outer, count),
            "weight gradient": Product(EXPERTS, outer, inner, tokens, count, 8 * count * outer * inner, of_weight=True),
        }[row["pass"]]
        its = found[count, tokens]
        its["measured"] += float(row["us"])
        its["predicted"] += watch.part(Part((product,), ())).get("experts", 0.0)
    return found


def test_grouped_products_of_experts_take_what_was_measured_where_the_host_does_not_bound_them() -> None:
    """DeepSeek-V2 and V3 over 1 to 8 ranks; of few tokens each expert's launch takes longer than its product."""
    errors = {size: its["predicted"] / its["measured"] - 1 for size, its in experts().items()}
    large = {size: error for size, error in errors.items() if size[1] >= 256}
    assert len(large) == 6 and all(abs(error) < 0.06 for error in large.values()), errors


@pytest.mark.parametrize("half", [0, 1])
def test_either_half_of_the_layouts_with_experts_is_predicted_by_the_share_of_a_nics_rate(
    half: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Megatron-Bridge's, whose all-to-alls cross servers: no other share is better by more than 2 %."""
    rows = [(row, found.job) for row, found in held("bridge.csv") if row["family"] == "moe"]
    names = [row["name"].split("/", 1)[1].rsplit("/", 1)[0] for row, _ in rows]
    order = sorted(set(names))
    its = [each for each, name in zip(rows, names, strict=True) if order.index(name) % 2 == half]
    wrong = {}
    for share in SHARES:
        monkeypatch.setattr(duration, "NIC_SHARE", share)
        errors = (log(predict(job, machines()[job.gpu]).ms / float(row["measured_ms"])) for row, job in its)
        wrong[share] = sum(map(abs, errors)) / len(its)
    assert wrong[NIC_SHARE] < 1.02 * min(wrong.values()), wrong
    assert min(wrong[0.5], wrong[1.0]) > 1.015 * min(wrong.values()), wrong


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", ["simumax.csv", "bridge.csv"])
def test_either_half_of_either_source_shows_a_dispatch_around_the_shipped_factor(name: str, half: int) -> None:
    rows = [(row, found.job) for row, found in held(name) if row["family"] == "moe"]
    names = [row["name"].rsplit("_mbc", 1)[0].split("/", 1)[-1].rsplit("/row", 1)[0] for row, _ in rows]
    order = sorted(set(names))
    its = [each for each, name in zip(rows, names, strict=True) if order.index(name) % 2 == half]
    wrong = {}
    for factor in (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6):
        machine = {gpu: replace(at, factors=replace(at.factors, dispatch=factor)) for gpu, at in machines().items()}
        errors = [log(predict(job, machine[job.gpu]).ms / float(row["measured_ms"])) for row, job in its]
        wrong[factor] = sum(map(abs, errors))
    assert 1.4 <= min(wrong, key=lambda factor: wrong[factor]) <= 2.4, wrong
    assert 1.4 < Factors({}).dispatch < 2.4


def test_sorting_tokens_takes_longer_on_a_b200_than_memory_alone_allows_and_exchanging_them_does_not() -> None:
    """SimuMax's measured shares of 8,000 GB/s (permute_fwd) and of 900 GB/s (all2all) over 8 ranks."""
    machine = machines()["B200"]
    assert machine.memory_GBps * MEMORY_SHARE / (0.5008 * 8000) == pytest.approx(1.44, abs=0.005)
    for size in (256 << 20, 1 << 30):
        us = nvlink_us("B200", "ALLTOALL", 8, size, machine.nvlink_GBps)
        assert us == pytest.approx(size * 7 / 8 / (0.5968 * 900e3), rel=0.05)


def test_a_message_inside_a_server_takes_what_two_ranks_exchange_takes() -> None:
    size = 64 << 20
    for gpu in ("H100", "B200"):
        machine = machines()[gpu]
        its = Stopwatch(job(gpu=gpu, gpus=8), machine).send_us(size, 1)
        assert its == nvlink_us(gpu, "ALLTOALL", 2, 2 * size, machine.nvlink_GBps)
        assert its > size / machine.nvlink_GBps / 1e3
