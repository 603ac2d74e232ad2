"""Transformer Engine's layers, by a stand-in of its interface: they train alike, and the faster ones are used."""

import ast
import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from protocol import pulse
from protocol.perflog import parse_line
from tests.training.benchmarks.driver.launch.launching import ALONE, ROOT
from tests.training.benchmarks.driver.training import reference
from tests.training.benchmarks.driver.training.model.test_kernels import Gpu
from tests.training.benchmarks.driver.training.test_trainer_run import arguments_of
from tests.training.benchmarks.driver.training.tiny import EVERY, alone, benchmark_of, config_of, prepared, trainer_of
from training.benchmarks.driver.launch import fused
from training.benchmarks.driver.training.measuring import contest
from training.benchmarks.driver.training.measuring.contest import Contest, Layers, decided
from training.benchmarks.driver.training.measuring.meter import Meter
from training.benchmarks.driver.training.model import engine
from training.benchmarks.driver.training.model.kernels import TIMED, Choice, Kernels, Libraries, choose
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.settings import ENGINE, TrainingConfig
from training.benchmarks.driver.training.trainer import Trainer
from training.benchmarks.driver.workload.usage import UnusableSettingsError

CPU = torch.device("cpu")
STAND_IN = Path(__file__).with_name("engine_stand_in")
PUBLISHED = [*ROOT.glob(".cache/trace/lib/python3*/site-packages/transformer_engine/pytorch")]
STEPS = 4
LINEAR, NORM, BOTH = ("linear",), ("norm",), ("linear", "norm")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Transformer Engine is installed."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    engine._class.cache_clear()
    yield importlib.import_module("transformer_engine.pytorch")
    engine._class.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == ENGINE]:
        del sys.modules[name]


def _parameters(source: Path, name: str) -> list[str]:
    """Names of the arguments with which a class of a module, or a function of it, is called."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            inner = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            made = inner[0] if isinstance(node, ast.ClassDef) else node
            return [each.arg for each in (*made.args.args, *made.args.kwonlyargs) if each.arg != "self"]
    raise LookupError(name)


@pytest.mark.nightly
@pytest.mark.skipif(not PUBLISHED, reason="no .cache/trace: make nightly installs requirements/trace.lock there")
def test_the_stand_in_takes_what_the_library_takes() -> None:
    ours, (theirs,) = STAND_IN / ENGINE / "pytorch.py", PUBLISHED
    for name, source in (("Linear", "module/linear.py"), ("RMSNorm", "ops/basic/rmsnorm.py"),
                         ("LayerNorm", "ops/basic/layer_norm.py"), ("fp8_autocast", "quantization.py")):  # fmt: skip
        assert set(_parameters(ours, name)) <= set(_parameters(theirs / source, name)), name
    assert {"enabled", "recipe"} <= set(_parameters(theirs / "quantization.py", "autocast"))


def _start(model: str, config: TrainingConfig) -> dict[str, Tensor]:
    net: BenchmarkModel = benchmark_of(model).build_model(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            net.initialize(name, parameter, generator)
    return net.state_dict()


def _converted(
    model: str, config: TrainingConfig, start: dict[str, Tensor], recipe: str | None = None
) -> BenchmarkModel:
    with torch.device("meta"):
        net: BenchmarkModel = benchmark_of(model).build_model(config)
    engine.convert(net, BOTH, recipe, CPU)
    net.to_empty(device=CPU)
    net.load_state_dict(start)
    net.make_constants(CPU)
    return net.train()


@pytest.mark.parametrize("model", EVERY)
def test_a_model_trains_with_the_library_s_layers_as_with_torch_s(model: str, library: ModuleType) -> None:
    config = config_of(model)
    start = _start(model, config)
    net = _converted(model, config, start)
    assert net.state_dict().keys() == start.keys(), "a checkpoint of one resumes with the other"
    plain, _ = reference.train(model, config, start, STEPS)
    found = reference.train_net(net, lambda batch: net(batch)["loss"], model, config, STEPS)
    assert found == pytest.approx(plain, abs=1e-5, rel=0)
    norms = {"llama": {"RMSNorm"}, "mixtral": {"RMSNorm"}, "bert": set()}
    assert library.called == {"Linear"} | norms.get(model, {"LayerNorm"})


def test_all_layers_of_the_blocks_are_converted_but_a_router_and_no_others(library: ModuleType) -> None:
    config = config_of("mixtral")
    net = _converted("mixtral", config, _start("mixtral", config))
    kinds = {name: type(layer) for name, layer in net.named_modules() if type(layer) in (nn.Linear, nn.RMSNorm)}
    assert sorted(kinds) == ["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate", "model.norm"]


def test_a_post_norm_s_result_is_the_residual_and_keeps_its_bits(library: ModuleType) -> None:
    config = config_of("bert", precision="bf16")
    start = _start("bert", config)
    hidden, mask = torch.rand(2, 16, 32), torch.ones(2, 1, 1, 16, dtype=torch.bool)
    found = []
    for net in (_converted("bert", config, start), reference.model_with("bert", config, start)):
        with torch.autocast("cpu", torch.bfloat16):
            found.append(net.blocks()[0](hidden, mask))
    assert found[0].dtype == torch.float32 and library.called == {"Linear"}
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_blocks_of_which_the_library_replaces_nothing_are_refused(library: ModuleType) -> None:
    config = config_of("llama", hidden_size=40, ffn_hidden_size=72)
    with torch.device("meta"):
        net: BenchmarkModel = benchmark_of("llama").build_model(config)
    assert engine.in_words(engine.convert(net, BOTH, None, CPU)) == "0 of 14 linear and 4 of 4 norm"
    for kinds, recipe in ((LINEAR, None), (BOTH, "tensorwise")):
        with torch.device("meta"):
            net = benchmark_of("llama").build_model(config)
        with pytest.raises(UnusableSettingsError, match="transformer_engine can replace 0 of 14 linear"):
            engine.convert(net, kinds, recipe, CPU)


def test_fp8_by_the_library_is_that_of_torchao(library: ModuleType) -> None:
    config = config_of("llama", precision="bf16", fp8="tensorwise")
    start = _start("llama", config)
    nets = {
        "plain": reference.model_with("llama", config, start),
        "torchao": reference.model_with("llama", config, start),
    }
    engine.convert(nets["torchao"], (), "tensorwise", CPU)
    nets["engine"] = _converted("llama", config, start, "tensorwise")
    batch = benchmark_of("llama").synthetic_data(config).train[list(range(16))]
    gradients = {}
    for name, net in nets.items():
        torch.autograd.backward(net.train()(batch)["loss"])
        gradients[name] = torch.cat([each.grad.flatten() for each in net.parameters() if each.grad is not None])
    moved, off = (
        (gradients["engine"] - gradients[other]).norm() / gradients["plain"].norm() for other in ("plain", "torchao")
    )
    assert off < 1e-3 < 1e-2 < moved < 1e-1, "as torchao's own test has it"


def test_a_library_without_the_recipe_is_refused(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("transformer_engine.common.recipe.Float8CurrentScaling")
    config = config_of("llama", precision="bf16", fp8="tensorwise")
    with pytest.raises(UnusableSettingsError, match="this transformer_engine has no Float8CurrentScaling"):
        _converted("llama", config, _start("llama", config), "tensorwise")


def _choose(device: Libraries, **settings: Any) -> Kernels:
    config = config_of("llama", **{"precision": "bf16", "compile_backend": None, **settings})
    return choose(config, benchmark_of("llama").attentions, device)


@pytest.mark.parametrize(
    ("settings", "device", "used", "why"),
    [
        ({}, Gpu(transformer_engine="2.9"), TIMED, "the ranks time both"),
        ({"layers": "torch"}, Gpu(transformer_engine="2.9"), "torch", "asked for"),
        ({"layers": ENGINE}, Gpu(transformer_engine="2.9"), ENGINE, "asked for"),
        ({}, Gpu(), "torch", "not transformer_engine: transformer_engine is not installed"),
        ({}, Gpu(transformer_engine="unusable: ABI"), "torch", "transformer_engine is unusable: ABI"),
        ({}, Libraries(CPU), "torch", "needs an accelerator, this rank has cpu"),
        ({"precision": "fp32"}, Gpu(transformer_engine="2.9"), "torch", "needs precision 'bf16' or 'fp16'"),
        ({"tensor_parallel_size": 2}, Gpu(transformer_engine="2.9"), "torch", "needs tensor_parallel_size = 1"),
        ({"context_parallel_size": 2}, Gpu(transformer_engine="2.9"), "torch", "a rank alone cannot time"),
        ({"context_parallel_size": 2, "layers": ENGINE}, Gpu(transformer_engine="2.9"), ENGINE, "asked for"),
    ],
)
def test_layers_are_timed_where_both_work(settings: dict[str, Any], device: Libraries, used: str, why: str) -> None:
    layers = _choose(device, **settings).layers
    assert (layers.used, layers.asked) == (used, settings.get("layers", "auto")) and why in layers.why


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (Gpu(), "layers = 'transformer_engine': transformer_engine is not installed"),
        (Libraries(CPU), "layers = 'transformer_engine': needs an accelerator"),
    ],
)
def test_a_library_that_is_not_there_is_refused_to_who_asks_for_it(device: Libraries, message: str) -> None:
    with pytest.raises(UnusableSettingsError) as error:
        _choose(device, layers=ENGINE)
    assert message in str(error.value)


def test_settings_that_the_library_cannot_compute_are_named_together() -> None:
    with pytest.raises(
        ValueError, match=r"layers = 'transformer_engine' needs precision .*, needs tensor_parallel_size"
    ):
        config_of("llama", layers=ENGINE, tensor_parallel_size=2)
    with pytest.raises(ValueError, match="layers = 'transformer_engine' has no recipe like fp8 = 'rowwise'"):
        config_of("llama", layers=ENGINE, precision="bf16", fp8="rowwise")
    with pytest.raises(ValueError, match="has no products that activation_checkpointing = 'selective' keeps; allowed"):
        config_of("llama", layers=ENGINE, precision="bf16", activation_checkpointing="selective")


def test_fp8_by_the_library_alone_needs_no_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr("training.benchmarks.driver.training.model.fp8.against", lambda _: "torchao is not installed")
    chosen = _choose(Gpu(transformer_engine="2.9"), layers=ENGINE, fp8="tensorwise")
    assert (chosen.fp8_recipe, chosen.fp8.why) == ("tensorwise", "transformer_engine 2.9")
    layers = _choose(Gpu(transformer_engine="2.9"), fp8="tensorwise").layers
    assert (layers.used, layers.why) == (ENGINE, "torchao is not installed for torch's layers in FP8")


def _trainer(
    monkeypatch: pytest.MonkeyPatch, folder: Path, used: str, model: str = "llama", **settings: Any
) -> Trainer:
    """The trainer of a model on this process alone, with the choice of layers that a device would lead to."""
    config = config_of(model, **settings)
    chosen = Choice(asked="auto", used=used, why="")
    monkeypatch.setattr(contest, "RISING_NS", 0)
    ready = prepared(model, config)
    ready = replace(ready, kernels=replace(ready.kernels, layers=chosen))
    monkeypatch.setattr("tests.training.benchmarks.driver.training.tiny.prepared", lambda *_: ready)
    with alone() as group:
        return trainer_of(model, config, group, folder / "log")


def _clock(monkeypatch: pytest.MonkeyPatch, library: ModuleType) -> None:
    """A block takes a second, and what the layers of the test take."""

    class Clock(Meter):
        def now(self) -> float:
            library.clock[0] += 1.0
            return float(library.clock[0])

    monkeypatch.setattr(contest, "Meter", Clock)


def _refused(*_: object) -> None:
    raise RuntimeError("cuBLAS is too old\nand more")


def _slowed(monkeypatch: pytest.MonkeyPatch, library: ModuleType, layer: type[nn.Module]) -> None:
    forward: Any = layer.forward

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def slow(self: nn.Module, inputs: Tensor) -> Tensor:
        library.clock[0] += 1.0
        found: Tensor = forward(self, inputs)
        return found

    monkeypatch.setattr(layer, "forward", slow)


FSDP = {"strategy": "fsdp", "activation_checkpointing": True}


@pytest.mark.parametrize(
    ("slow", "kinds", "settings"),
    [
        (("torch.Linear", "engine.RMSNorm"), LINEAR, {}),
        (("torch.RMSNorm", "engine.Linear"), NORM, {"compile_backend": "eager"}),
        (("torch.Linear", "torch.RMSNorm"), BOTH, FSDP),
        (("engine.Linear", "engine.RMSNorm"), (), {}),
    ],
)
def test_the_faster_layers_are_used_and_both_times_are_recorded(
    slow: tuple[str, str],
    kinds: tuple[str, ...],
    settings: dict[str, Any],
    library: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _clock(monkeypatch, library)
    for whose, _, name in (each.partition(".") for each in slow):
        if whose == "torch":
            _slowed(monkeypatch, library, getattr(nn, name))
        else:
            monkeypatch.setitem(library.seconds, name, 1.0)
    trainer = _trainer(monkeypatch, tmp_path, TIMED, precision="bf16", **settings)
    assert trainer.layers.kinds == kinds
    record = trainer.layers.record()
    counts = " and ".join({"linear": "14 of 14 linear", "norm": "4 of 4 norm"}[kind] for kind in kinds)
    assert record["layers"] == (f"transformer_engine: {counts}" if kinds else "torch")
    times = record["layers_seconds_of_a_block"]
    assert list(times) == ["torch", "linear", "norm", "linear and norm"] and min(times.values()) > 0
    makers = {type(layer).__module__ for layer in trainer.model.module.blocks()[-1].modules()}
    assert (engine.__name__ in makers) == bool(kinds)


def test_a_run_says_whose_layers_it_has_and_resumes_from_one_with_others(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(fused, "detect", lambda names: {name: "2.20.2" if name == ENGINE else None for name in names})
    monkeypatch.setattr(Libraries, "against", lambda *_: None)  # as if the host were a device that runs all kernels
    _clock(monkeypatch, library)
    _slowed(monkeypatch, library, nn.Linear)
    settings = {
        "precision": "bf16", "compile_backend": None, "optimizer_impl": "fused", "checkpoint_interval_steps": 2,
        "checkpoint_dir": str(tmp_path / "saved"), "lr_decay_steps": 4,
    }  # fmt: skip
    found: list[dict[str, Any]] = []
    for changes in ({"layers": "torch", "max_steps": 2}, {"max_steps": 4, "resume": True}):
        run_training(benchmark_of("llama"), EVERY["llama"][1], arguments_of(tmp_path, "llama", settings | changes))
        records = filter(None, map(parse_line, capsys.readouterr().out.splitlines()))
        found.append({str(each.event): each.value for each in records})
    torchs, engines = found
    assert torchs["FINISHED"]["layers"] == torchs["INIT_END"]["layers"] == "torch"
    assert "layers_seconds_of_a_block" not in torchs["FINISHED"], "nothing was timed for who has chosen"
    layers = engines["LAUNCH_TRAINING"]["kernels"]["layers"]
    assert layers == {"asked": "auto", "used": "the faster", "why": "the ranks time both"}
    assert engines["TRAIN_START"]["resumed_after_step"] == 2
    for event in ("INIT_END", "FINISHED"):
        assert engines[event]["layers"] == "transformer_engine: 14 of 14 linear"
        times = engines[event]["layers_seconds_of_a_block"]
        assert times["torch"] == times["norm"] > times["linear"] == times["linear and norm"] == 1.0


SELECTIVE = "recomputation 'selective' keeps no product of transformer_engine, which it repeats"


@pytest.mark.parametrize(
    ("model", "settings", "reasons"),
    [
        ("llama", {"activation_checkpointing": "selective"}, {"linear": SELECTIVE, "linear and norm": SELECTIVE}),
        (
            "bert",
            {},
            {
                "norm": "layers: transformer_engine can replace 0 of 2 norm layers of the blocks",
                "linear and norm": "transformer_engine can replace 6 of 6 linear and 0 of 2 norm layers of a block",
            },
        ),
    ],
)
def test_layers_that_are_not_worth_a_trial_are_left_out_with_the_reason(
    model: str,
    settings: dict[str, Any],
    reasons: dict[str, str],
    library: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _clock(monkeypatch, library)
    _slowed(monkeypatch, library, nn.Linear)
    trainer = _trainer(monkeypatch, tmp_path, TIMED, model, precision="bf16", **settings)
    assert trainer.layers.failed == reasons
    linear = "transformer_engine: 12 of 12 linear"
    assert trainer.layers.record()["layers"] == ("torch" if settings else linear)


def test_each_pass_and_each_trial_gives_a_sign_of_life(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pass may compile for a minute: between any two the progress moves by which the stall limit judges a rank."""
    seen: list[int] = []

    def noted(*_: object) -> None:
        seen.append(pulse._counts()["steps"])

    def watched(forward: Any) -> Any:
        def run(*inputs: Tensor) -> Tensor:
            noted()
            found: Tensor = forward(*inputs)
            found.register_hook(noted)  # type: ignore[no-untyped-call]
            return found

        return run

    run_block: Any = BenchmarkModel.run_block
    monkeypatch.setattr(
        BenchmarkModel, "run_block", lambda self, block, *inputs: run_block(self, watched(block), *inputs)
    )
    _trainer(monkeypatch, tmp_path, TIMED, precision="bf16")
    passes = seen[1:]  # before them the model is called for its first block's inputs
    assert len(passes) >= 2 * 4 * contest.CALLS and len({*passes}) == len(passes)
    tried = [line for line in capsys.readouterr().out.splitlines() if line.startswith("layers: trying")]
    assert [line.split(" ", 2)[2] for line in tried] == [
        "torch, 1 of 4", "linear, 2 of 4", "norm, 3 of 4", "linear and norm, 4 of 4",
    ]  # fmt: skip


def test_timing_leaves_no_trace_in_the_training(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    weights = {}
    monkeypatch.setattr(library.Linear, "forward", _refused)
    monkeypatch.setattr(library.RMSNorm, "forward", _refused)
    for used in ("torch", TIMED):
        trainer = _trainer(monkeypatch, tmp_path, used, precision="bf16")
        weights[used] = (torch.initial_seed(), torch.rand(3), trainer.model.module.state_dict())
    torch.testing.assert_close(weights[TIMED], weights["torch"], rtol=0, atol=0)


def test_layers_that_do_not_work_here_are_named_and_not_used(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _slowed(monkeypatch, library, nn.Linear)
    _clock(monkeypatch, library)

    monkeypatch.setattr(library.RMSNorm, "forward", _refused)
    layers = _trainer(monkeypatch, tmp_path, TIMED, precision="bf16").layers
    assert layers.kinds == LINEAR
    assert layers.failed == {"norm": "cuBLAS is too old", "linear and norm": "cuBLAS is too old"}


def test_layers_that_hold_more_than_torch_s_are_not_used(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _slowed(monkeypatch, library, nn.Linear)
    _clock(monkeypatch, library)
    peaks = iter([1000, 1021, 1020, 1000])
    monkeypatch.setattr(Contest, "_peak", lambda _: next(peaks))
    layers = _trainer(monkeypatch, tmp_path, TIMED, precision="bf16").layers
    assert layers.kinds == BOTH and [*layers.seconds] == ["torch", "norm", "linear and norm"]
    assert layers.failed == {"linear": "a block holds 1021 bytes, 1020 at most are allowed beside torch's"}


def test_a_device_on_which_torch_s_block_cannot_be_timed_has_torch_s_layers(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = []

    def full(*_: object) -> None:
        tries.append(1)
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Contest, "_inputs", full)
    layers = _trainer(monkeypatch, tmp_path, TIMED, precision="bf16").layers
    assert layers == Layers(kinds=(), failed={"torch": "out of memory"}) and len(tries) == 1


def test_a_library_without_a_layer_is_refused(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(library, "RMSNorm")
    engine._class.cache_clear()
    config = config_of("llama", precision="bf16")
    with pytest.raises(UnusableSettingsError, match="layers: this transformer_engine has no RMSNorm"):
        _converted("llama", config, _start("llama", config))


def test_the_slowest_rank_decides_and_a_gain_within_the_noise_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[Any] = [({(): 2.0, LINEAR: 1.0, NORM: 1.5}, {})]

    def gather(found: list[Any], own: object) -> None:
        found[:] = [own, *others]

    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    found = decided({(): 2.0, LINEAR: 3.0, NORM: 1.0}, {})
    assert found == Layers(kinds=NORM, seconds={"torch": 2.0, "linear": 3.0, "norm": 1.5})
    assert decided({(): 2.0, NORM: 1.99}, {}).kinds == () != decided({(): 2.0, NORM: 1.9}, {}).kinds
    others[0] = ({(): 2.0}, {NORM: "no"})
    assert decided({(): 2.0, NORM: 1.0}, {}) == Layers(kinds=(), seconds={"torch": 2.0}, failed={"norm": "no"})
