"""Settings of the trainer and of every model: what is refused, and that the shipped cases are accepted."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import vendors
from common.errors import InputProblems
from protocol.case_config import load_case_config
from protocol.config_file import config_files
from tests.training.benchmarks.driver.launch.launching import ROOT
from tests.training.benchmarks.driver.training.tiny import COMMON, MODELS, config_of
from training.benchmarks.catalog import available, benchmark
from training.benchmarks.driver.training.settings.pipeline_settings import layers_of_stages
from training.benchmarks.driver.training.settings.settings import Target, TrainingConfig

FOLDERS = sorted(path for model in ("base", *MODELS) for path in (ROOT / "vendors").glob(f"*/{model}-pytorch/config"))
PP = {"pipeline_parallel_size": 2}
FP8 = {"precision": "bf16", "fp8": "rowwise"}
CASES = sorted(path for folder in FOLDERS for path in folder.glob("config_*.py"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: "/".join(path.parts[-4:]).replace("/config/", "/"))
def test_every_shipped_case_is_valid(path: Path) -> None:
    model = path.parents[1].name.removesuffix("-pytorch")
    config = load_case_config(benchmark(model, "pytorch").config_class, path, {})
    if isinstance(config, TrainingConfig) and model != "llama":
        assert config.targets(), "a case without a target cannot fail"


def test_every_vendor_has_the_cases_it_should() -> None:
    names = {f"{folder.parts[-3]}/{folder.parts[-2]}/{name}" for folder in FOLDERS for name in config_files(folder)}
    for model in ("base", *MODELS):
        assert f"cpu/{model}-pytorch/config_CPUx1x2" in names
        for device in ("A100", "H100", "H200"):
            for shape in ("1x1", "1x8", "2x8"):
                assert f"nvidia/{model}-pytorch/config_{device}x{shape}" in names
    assert vendors.load("nvidia").environment["NCCL_DEBUG"] == "WARN"
    (requirements,) = vendors.case_requirements(vendors.case_dir("nvidia", "cpm", "pytorch"))
    assert "jieba==" in requirements.read_text()


def test_the_head_node_needs_no_torch_for_any_config() -> None:
    models = [name for name, framework in available() if framework == "pytorch"]
    assert {"base", *MODELS} <= set(models)
    code = (
        "import sys; from training.benchmarks.catalog import benchmark;"
        f"[benchmark(m, 'pytorch') for m in {models!r}];"
        "print([m for m in ('torch', 'numpy', 'psutil', 'h5py') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": None}, "the run has no end"),
        ({"resume": True}, "resume needs checkpoint_dir"),
        ({"checkpoint_interval_steps": 5}, "checkpoint_interval_steps needs checkpoint_dir"),
        ({"eval_start_samples": 64}, "eval_start_samples has no effect without eval_interval_samples"),
        ({"checkpoint_dir": "/x"}, "checkpoint_dir has no effect"),
        ({"lr_schedule": "constant"}, "min_lr_ratio has no effect"),
        ({"precision": "fp8"}, "precision = 'fp8'"),
        ({"optimiser": "adamw"}, "did you mean 'optimizer'"),
        ({"train_batch_size": 0}, "train_batch_size = 0"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    _, config_class, sizes = MODELS["llama"]
    with pytest.raises(InputProblems, match=message):
        load_case_config(config_class, None, COMMON | sizes | settings)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("llama", {"hidden_size": 36}, "hidden_size = 36 is no even number"),
        ("llama", {"num_key_value_heads": 3}, "no multiple of num_key_value_heads = 3"),
        ("llama", {"tensor_parallel_size": 3}, "no multiple of tensor_parallel_size = 3"),
        ("llama", {"sequence_parallel": True}, "sequence_parallel has no effect"),
        ("llama", {"synthetic_tokens": 65}, "synthetic_tokens = 65"),
        ("llama", {"fp8": "rowwise"}, "fp8 = 'rowwise' needs precision 'bf16', which is 'fp32'"),
        ("llama", FP8 | {"tensor_parallel_size": 2}, "fp8 = 'rowwise' needs tensor_parallel_size = 1, which is 2"),
        ("llama", FP8 | {"ffn_hidden_size": 72}, "ffn_hidden_size = 72 is no multiple of 16"),
        ("llama", FP8 | {"num_key_value_heads": 1}, "num_key_value_heads = 8 is no multiple of 16"),
        ("llama", FP8 | {"seq_length": 8}, "seq_length = 8 is no multiple of 16"),
        ("llama", {"pipeline_stages_per_rank": 2}, "pipeline_stages_per_rank = 2 needs pipeline_parallel_size > 1"),
        (
            "llama",
            PP | {"pipeline_stages_per_rank": 2, "num_layers": 4, "gradient_accumulation_steps": 3},
            "gradient_accumulation_steps = 3; allowed: multiples of 2, the micro-batches of pipeline_parallel_size = 2",
        ),
        ("llama", {"context_parallel_size": 3, "seq_length": 15}, "Value error, num_attention_heads = 4 is no"),
        (
            "llama",
            {"context_parallel_size": 6},
            "seq_length = 16 is no multiple of context_parallel_size = 6; num_attention_heads = 4 is no multiple of"
            " context_parallel_size = 6",
        ),
        (
            "llama",
            {"context_parallel_size": 4, "tensor_parallel_size": 2, "sequence_parallel": True, "seq_length": 12},
            "seq_length = 12 is no multiple of context_parallel_size = 4 x tensor_parallel_size = 2; num_attention",
        ),
        (
            "llama",
            {"context_parallel_size": 4, "hidden_size": 48, "num_attention_heads": 12, "num_key_value_heads": 6},
            "num_key_value_heads = 6 is no multiple and no part of context_parallel_size = 4",
        ),
        (
            "llama",
            FP8 | {"context_parallel_size": 2},
            "seq_length / context_parallel_size = 8 is no multiple of 16, which fp8 = 'rowwise' needs",
        ),
        ("mixtral", {"context_parallel_size": 8}, "num_attention_heads = 4 is no multiple of context_parallel_size"),
        ("bert", {"context_parallel_size": 2}, "context_parallel_size"),
        ("bert", {"num_attention_heads": 5}, "no multiple of num_attention_heads = 5"),
        ("bert", {"max_seq_length": 17}, "max_seq_length = 17"),
        ("bert", {"max_predictions_per_seq": 14}, "max_predictions_per_seq = 14"),
        ("bert", {"synthetic_tokens": 61}, "synthetic_tokens = 61"),
        ("glm", {"max_seq_length": 17}, "max_seq_length = 17"),
        ("glm", {"answer_length": 15}, "answer_length = 15"),
        ("glm", {"num_choices": 41}, "num_choices = 41"),
        ("cpm", {"seq_length": 17}, "seq_length = 17"),
        ("cpm", {"target_embedding_average": 0.92}, "set target_loss"),
    ],
)
def test_sizes_of_a_model_that_cannot_be_are_named(model: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(model, **settings)


def test_all_that_a_pipeline_cannot_have_is_said_at_once() -> None:
    settings = {
        "pipeline_parallel_size": 3,
        "strategy": "hsdp",
        "precision": "fp16",
        "profile": "phases",
        "save_weights": "/x",
    }
    with pytest.raises(ValidationError) as refused:
        config_of("llama", **settings)
    (error,) = refused.value.errors()
    assert error["msg"].removeprefix("Value error, ").split("; ") == [
        "strategy = 'hsdp'", "allowed: 'ddp', 'fsdp', which pipeline_parallel_size = 3 needs",
        "precision = 'fp16'", "allowed: 'fp32', 'bf16', which pipeline_parallel_size = 3 needs",
        "profile = 'phases'", "allowed: None, 'trace', which pipeline_parallel_size = 3 needs",
        "save_weights = '/x'", "allowed: None, which pipeline_parallel_size = 3 needs",
        "num_layers = 2", "allowed: 3 or more, a layer in each stage",
        "gradient_accumulation_steps = 1", "allowed: 3 or more, the micro-batches of pipeline_parallel_size = 3",
    ]  # fmt: skip
    others = (
        "context_parallel_size = 2; allowed: 1, which pipeline_parallel_size = 2 needs; fp8 = 'rowwise'; allowed: N"
    )
    with pytest.raises(ValueError, match=others):
        config_of("llama", **PP, **FP8, gradient_accumulation_steps=2, context_parallel_size=2)


@pytest.mark.parametrize(
    ("layers", "stages", "counts"), [(80, 4, [20] * 4), (6, 4, [1, 2, 2, 1]), (7, 4, [2, 2, 2, 1]), (4, 4, [1] * 4)]
)
def test_stages_in_the_middle_of_a_pipeline_have_the_layers_left_over(
    layers: int, stages: int, counts: list[int]
) -> None:
    found = layers_of_stages(layers, stages)
    assert [len(stage) for stage in found] == counts
    assert [layer for stage in found for layer in stage] == [*range(layers)]


def test_a_target_is_met_from_its_side_and_never_by_nan() -> None:
    accuracy = Target(metric="eval_accuracy", bound=0.8, at_least=True)
    loss = Target(metric="eval_loss", bound=0.6, at_least=False)
    assert accuracy.met({"eval_accuracy": 0.8}) and not accuracy.met({"eval_accuracy": 0.79})
    assert loss.met({"eval_loss": 0.6}) and not loss.met({"eval_loss": 0.61})
    assert not accuracy.met({"eval_accuracy": float("nan")}) and not loss.met({"eval_loss": float("nan")})
    assert (str(accuracy), str(loss)) == ("eval_accuracy >= 0.8", "eval_loss <= 0.6")


@pytest.mark.parametrize(
    ("settings", "ranks", "found"),
    [
        ({"strategy": "ddp"}, (16, 8), 1),
        ({"strategy": "ddp", "tensor_parallel_size": 2}, (2, 2), 1),
        ({"strategy": "fsdp"}, (16, 8), 16),
        ({"strategy": "fsdp", "tensor_parallel_size": 2}, (16, 8), 8),
        (PP | {"strategy": "fsdp", "tensor_parallel_size": 2, "gradient_accumulation_steps": 2}, (16, 8), 4),
        ({"strategy": "hsdp"}, (16, 8), 8),
        ({"strategy": "hsdp"}, (1, 1), 1),
        ({"strategy": "hsdp", "tensor_parallel_size": 2}, (16, 8), 4),
        ({"strategy": "hsdp", "shard_size": 2}, (16, 8), 2),
        ({"strategy": "hsdp", "shard_size": 16}, (16, 8), 16),
        ({"strategy": "fsdp", "context_parallel_size": 4}, (16, 8), 16),
        ({"strategy": "hsdp", "context_parallel_size": 4}, (16, 8), 8),
    ],
)
def test_ranks_hold_a_copy_of_the_parameters_between_them(
    settings: dict[str, Any], ranks: tuple[int, int], found: int
) -> None:
    world_size, per_node = ranks
    config = config_of("llama", **settings)
    assert config.ranks_of_a_copy(world_size=world_size, per_node=per_node) == found
    assert config.refusal(nnodes=world_size // per_node, nproc=per_node) is None


@pytest.mark.parametrize(
    ("settings", "ranks", "message"),
    [
        ({"tensor_parallel_size": 2}, (1, 3), "tensor_parallel_size = 2 does not divide the 3 ranks"),
        (
            PP | {"tensor_parallel_size": 2, "gradient_accumulation_steps": 2},
            (1, 6),
            "pipeline_parallel_size = 2 with tensor_parallel_size = 2 does not divide the 6 ranks",
        ),
        (PP | {"gradient_accumulation_steps": 2}, (1, 3), "pipeline_parallel_size = 2 does not divide the 3 ranks"),
        ({"tensor_parallel_size": 2}, (2, 2), "need strategy = 'fsdp' or 'hsdp'"),
        ({"strategy": "hsdp", "shard_size": 3}, (2, 4), "shard_size = 3 does not divide the 8 data-parallel ranks"),
        ({"context_parallel_size": 2}, (1, 3), "context_parallel_size = 2 does not divide the 3 ranks"),
        (
            {"strategy": "fsdp", "tensor_parallel_size": 2, "context_parallel_size": 2},
            (3, 2),
            "context_parallel_size = 2 with tensor_parallel_size = 2 does not divide the 6 ranks",
        ),
        (
            {"strategy": "hsdp", "context_parallel_size": 4},
            (4, 2),
            "the 2 ranks of a copy (shard_size) are no multiple of context_parallel_size = 4",
        ),
        ({"strategy": "hsdp", "tensor_parallel_size": 2}, (4, 1), "a node's 1 ranks are no multiple of"),
    ],
)
def test_the_controller_knows_which_ranks_cannot_be_divided(
    settings: dict[str, Any], ranks: tuple[int, int], message: str
) -> None:
    nnodes, nproc = ranks
    assert message in str(config_of("llama", **settings).refusal(nnodes=nnodes, nproc=nproc))


def test_a_size_of_shards_needs_replicas_of_them() -> None:
    with pytest.raises(ValueError, match="shard_size has no effect with strategy = 'fsdp'; allowed: None"):
        config_of("llama", strategy="fsdp", shard_size=2)
