"""AIOB measures for real: what runs has the operations of a rank's layer, every part is timed, kernels say why."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.training.benchmarks.aicb.aiob_records import GPT, LATENT
from training.benchmarks.aicb.measuring import command, worker
from training.benchmarks.aicb.measuring.clock import Clock, ClockLimits
from training.benchmarks.aicb.measuring.command import Measured
from training.benchmarks.aicb.measuring.job import AiobJob
from training.benchmarks.aicb.measuring.layer import OnePart, WholeLayer
from training.benchmarks.aicb.measuring.modules import Setting
from training.benchmarks.aicb.measuring.parts import parts_of
from training.benchmarks.driver.training.model.kernels import Libraries
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.cli import main
from workloads.compute.aiob import read
from workloads.compute.database import load
from workloads.library import WorkloadArgs, generate
from workloads.rows.ops import OPERATORS, gemms_of

CPU = torch.device("cpu")
GATED = replace(GPT, num_query_groups=2, swiglu=True, enable_sequence_parallel=True)
MIXTURE = replace(
    GATED, moe_enable=True, num_experts=4, moe_router_topk=2, expert_model_parallel_size=2, normalization="LayerNorm"
)
MODELS = {"gpt": GPT, "gated": GATED, "mixture": MIXTURE, "latent": LATENT, "whole": replace(LATENT, q_lora_rank=0)}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads of tiny products wait for one another longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _setting(args: WorkloadArgs, attention: str = "sdpa") -> Setting:
    used = {"attention": attention, "norm": "torch", "experts": "bmm", "optimizer": "fused"}
    return Setting(args, CPU, torch.float32, used)


def _job(args: WorkloadArgs, **settings: Any) -> AiobJob:
    return AiobJob(args=args, iterations=3, warm_up=6, seconds=1000, threads=1, **{"precision": "fp32", **settings})


def _operations(call: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counted:
        call()
    return int(counted.get_total_flops())


def _products(args: WorkloadArgs) -> int:
    """Operations of the matrix products of one layer's forward pass on one rank, by hand."""
    tp, tokens, hidden, width = 2, 32, 64, args.ffn_size // 2
    gated = 3 if args.swiglu else 2
    if args.frame == "DeepSeek":
        query = 16 * (64 + 24) if args.q_lora_rank else 64 * 24
        attention = query + 64 * 20 + 16 * 32 + 16 * 64
    else:
        groups = (args.num_query_groups or 4) // tp
        attention = hidden * (2 + 2 * groups) * 16 + 32 * hidden
    if not args.moe_enable:
        return 2 * tokens * (attention + gated * hidden * width)
    routed = 2 * tokens * args.moe_router_topk * gated * hidden * width
    shared = 2 * tokens * gated * hidden * width if args.frame == "DeepSeek" else 0
    return 2 * tokens * attention + 2 * (tokens // tp) * hidden * 4 + routed + shared


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_whole_layer_has_the_operations_of_a_rank(name: str) -> None:
    args = MODELS[name]
    layer = WholeLayer(parts_of(args, fused=False), _setting(args, "unfused"))
    forward = _operations(layer.forward)
    heads, query, value = 2, *((12, 8) if args.frame == "DeepSeek" else (16, 16))
    core = 2 * heads * 32 * 32 * (query + value)
    assert forward == _products(args) + core
    layer.prepare_backward()
    assert _operations(layer.backward) == 2 * forward


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_parts_do_what_the_layer_does(name: str) -> None:
    args = MODELS[name]
    layer, operations = WholeLayer(parts_of(args, fused=True), _setting(args)), 0
    for part in parts_of(args, fused=True):
        if part.layer:
            one = OnePart(part, _setting(args))
            operations += _operations(one.forward)
            one.prepare_backward()
            operations += _operations(one.backward)
            assert sum(weight.numel() for weight in one.module.parameters()) == part.parameters
    whole = _operations(layer.forward)
    layer.prepare_backward()
    assert whole + _operations(layer.backward) == operations


@pytest.mark.parametrize("name", ["gpt", "latent"])
def test_every_part_and_every_product_is_timed(name: str) -> None:
    args = MODELS[name]
    record = worker.measured(_job(args))
    measured = Measured(record)
    for part in measured.parts:
        forward, backward = measured.samples("forward", part), measured.samples("backward", part)
        assert forward is not None and 0 < forward.minimum <= forward.p50 <= forward.maximum
        assert forward.count + forward.dropped == 3 and 5 <= forward.warm_up <= 6
        assert (backward is None) == (part.kind == "adam")
    rows = generate(replace(args, computation_enable=True), dialect="aicb").rows
    assert [(each["op"], each["m"], each["k"], each["n"]) for each in record["gemms"]] == [
        (gemm.op, gemm.m, gemm.k, gemm.n) for gemm in gemms_of(rows.tally())
    ]
    assert record["kernels"]["attention"]["used"] == "sdpa"
    assert "needs" in record["kernels"]["attention"]["why"]
    settled = [each["settled"] for each in record["gemms"]]
    assert sum(time.op in OPERATORS for time in measured.times()) == sum(settled)


def test_measuring_waits_for_the_times_to_settle_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(CPU, ClockLimits(iterations=4, warm_up=20))
    durations: Iterator[float] = iter([])
    monkeypatch.setattr(clock, "_timed", lambda call, count, before: [next(durations) for _ in range(count)])
    durations = iter([900, 500, 300, 101, 100, 100, 102, 101, 100, 200, 100, 1000])
    found = clock.measure(lambda: None)
    assert (found.warm_up, found.settled) == (8, True)
    assert (found.minimum, found.maximum, found.count, found.dropped) == (100, 200, 3, 1)
    durations = iter([100, 200] * 20)
    assert not clock.measure(lambda: None).settled


def test_a_kernel_that_cannot_run_here_is_refused_with_the_reason() -> None:
    with pytest.raises(UnusableSettingsError, match="attention = 'flash_attention_2': needs an accelerator"):
        worker.measured(_job(GPT, attention="flash_attention_2"))
    with pytest.raises(UnusableSettingsError, match=r"device 'cuda:7': torch .* sees"):
        worker.measured(_job(GPT, device="cuda:7"))
    with pytest.raises(UnusableSettingsError, match=r"needs about .* GB are free"):
        worker.measured(_job(replace(GPT, hidden_size=2**18, seq_length=2**18)))


def test_a_gpu_gets_the_fastest_kernels_that_import(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = Libraries(torch.device("cuda", 0))
    there = {"flash_attn": "2.8.3", "apex": "0.1", "transformer_engine": None}
    monkeypatch.setattr(libraries, "version", there.get)
    monkeypatch.setattr(libraries, "capability", lambda: (9, 0))

    def used(args: WorkloadArgs) -> dict[str, str]:
        return {kind: choice.used for kind, choice in worker.choose(args, "bf16", "auto", libraries).items()}

    assert used(GPT) == {
        "attention": "flash_attention_2", "norm": "apex", "experts": "grouped_mm", "optimizer": "fused",
    }  # fmt: skip
    # flash-attn has one size for queries and values.
    assert used(LATENT)["attention"] == "sdpa"
    there["transformer_engine"] = "2.9"
    assert used(GPT)["attention"] == used(GPT)["norm"] == "transformer_engine"


def test_the_command_measures_in_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "--world_size 8 --tp 2 --hidden_size 64 --num_layers 4 --num_attention_heads 4 --seq_length 32 --global_batch 8"
        " --vocab_size 256 --precision fp32 --threads 1 --iterations 3 --warm_up 5 --device cpu"
    )
    path, times = tmp_path / "times.txt", tmp_path / "times.db"
    assert main(["aiob", *words.split(), "--output", str(path), "--database", str(times)]) == 0
    output = capsys.readouterr().out
    assert "attention sdpa" in output and "whole layer" in output
    found = read(path)
    assert found.missing(deepseek=False) == [] and min(each.minimum for each in found.sections.values()) > 0
    assert read(tmp_path / "times.txt.json").gemms
    # On a busy machine little settles, and the database has what did.
    settled = [each["settled"] for each in json.loads((tmp_path / "times.txt.json").read_text())["gemms"]]
    assert sum(row.op in OPERATORS for row in load(times)) == sum(settled)
    monkeypatch.setattr(command, "measure", pytest.fail)
    assert main(["aiob", *words.split(), "--output", str(path)]) == 2, "refused before minutes of measuring"
    said = capsys.readouterr().err
    assert f"{path}: is there; give --force" in said and f"{path}.json: is there" in said
