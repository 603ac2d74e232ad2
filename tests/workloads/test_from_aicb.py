"""Reads docs/how-to/from-aicb.md: runs its commands and its example, and looks up every option, file and name on it."""

import argparse
import re
import shlex
import shutil
from collections import deque
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from tests.workloads.gloo_runs import DATA
from training.benchmarks.aicb.pytorch.config import Config
from workloads import options
from workloads.cli import main
from workloads.job.parameters import SCRIPTS_NAMES
from workloads.library import CommType, MockedModel, MockedParam, Workload, WorkloadArgs, generate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "from-aicb.md").read_text(encoding="utf-8")
PROGRAM = ".venv/bin/python -m workloads "
# The table of parameters of AICB's tutorial.
TUTORIAL = (
    "frame model_name world_size global_batch micro_batch epoch_num model_size num_layers hidden_size "
    "num_attention_heads seq_length vocab_size max_position_embeddings ffn_hidden_size "
    "tensor_model_parallel_size pipeline_model_parallel_size enable_sequence_parallel use_flash_attn swiglu "
    "openai_gelu onnx_safe squared_relu bias_gelu_fusion gated_linear_unit expert_model_parallel_size "
    "use_distributed_optimizer moe_enable num_experts moe_router_topk moe_grouped_gemm zero_stage reduce_bucket_size "
    "allgather_bucket_size prefetch_bucket_size param_persistence_threshold model_persistence_threshold "
    "max_live_parameters aiob_enable comp_filepath nnodes node_rank nproc_per_node master_addr "
)
TORCHRUNS = {"nnodes", "node_rank", "nproc_per_node", "master_addr", "master_port"}


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def cells(title: str, column: int) -> list[str]:
    """The texts in backticks of a column of a section's table."""
    rows = [line.split(" | ") for line in section(title).splitlines() if line.startswith("| ")][1:]
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row[column])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read: a run's op logs, and its log CSV."""
    made = tmp_path_factory.mktemp("page")
    shutil.copytree(DATA / "4", made / "run1")
    (made / "tests").symlink_to(ROOT / "tests")
    assert main(["log", str(made / "run1"), "--csv", str(made / "gpt_log.csv")]) == 0
    return made


def test_every_command_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    commands = [text for text in re.findall(r"`([^`]+)`", PAGE) if text.startswith(PROGRAM)]
    assert len(commands) > 14
    for command in commands:
        words = shlex.split(command.removeprefix(PROGRAM))
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(str(ended.code))
        assert code == 0, f"{command}: {capsys.readouterr().err}"
    assert {"gpt.csv", "zero3_aicb.csv", "gather.csv", "gpt.txt", "simai.txt", "log.html", "workload.html"} <= {
        path.name for path in folder.iterdir()
    }


@pytest.mark.parametrize(
    "line",
    [
        "generate -m 13 --world_size 8 --tensor_model_parallel_size 8 --pipeline_model_parallel_size 1 --global_batch 2"
        " --frame Megatron --micro_batch 1 --seq_length 4096 --swiglu --use_flash_attn --aiob_enable",
        "simai -m 7 --world_size 4096 --tensor_model_parallel_size 4 --pipeline_model_parallel_size 1 --swiglu"
        " --frame Megatron --global_batch 8192 --micro_batch 1 --seq_length 4096 --use_flash_attn",
        "simai --model_name GPT-13B --frame=Megatron --world_size=16 --tensor_model_parallel_size=2 --global_batch=16"
        " --pipeline_model_parallel_size=1 --micro_batch=1 --num_layers=40 --seq_length=2048 --hidden_size=5120"
        " --epoch_num=1 --use-distributed-optimizer --num_attention_heads=40 --use_flash_attn --swiglu",
        "generate --pipeline-model-parallel-size 2 --world_size 4 --num_attention_heads 16",
        "generate --pipeline 2 --world_size 4 --num_attention_heads 16",
    ],
)
def test_the_options_of_the_tutorials_commands_are_taken_as_they_stand(line: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert main([*line.split(), "--dialect", "aicb", "--output", str(output)]) == 0
    if "generate" in line:
        args = Workload.load(output)[1]
        assert args is not None and args.pipeline_model_parallel == (1 if "-m" in line.split() else 2)


def test_every_parameter_of_the_tutorial_is_an_option_and_a_setting() -> None:
    shown = cells("Options", 0)
    assert {"stage" if name == "zero_stage" else name for name in TUTORIAL.split()} <= set(shown)
    named = [SCRIPTS_NAMES.get(name, name) for name in shown]
    parser = argparse.ArgumentParser()
    options.add_to(parser)
    known = {spelling.removeprefix("--") for action in parser._actions for spelling in action.option_strings}
    spellings = {text.removeprefix("--").partition("=")[0] for text in cells("Options", 1) if text.startswith("--")}
    assert set(named) - TORCHRUNS <= known
    assert spellings <= known
    assert set(named) - TORCHRUNS - {"world_size"} <= set(Config.model_fields)


def test_every_file_and_name_of_the_page_is_there() -> None:
    for text in re.findall(r"`((?:vendors|run_benchmarks)/[^` ]+)`", PAGE):
        assert (ROOT / text).exists(), text
    for name in cells("Classes", 1):
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


def test_the_trainer_of_the_page_writes_its_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = PAGE.split("<!-- trainer -->")[1].split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    rows = list(Workload.load(tmp_path / "plain.csv")[0])
    passes = [CommType.all_reduce] * 2
    iteration = [*passes, *passes, CommType.all_reduce, CommType.epoch_end]
    assert [row.comm_type for row in rows] == [*[CommType.broadcast] * 2, CommType.epoch_end, *iteration, *iteration]
    assert [row.msg_size for row in rows[:5]] == [8 << 20, 8 << 20, 0, 8 << 20, 8 << 20]
    assert {row.comm_group_size for row in rows if row.comm_group} == {8}


def test_parameters_in_dicts_and_nested_lists_are_found_in_order() -> None:
    class Nested(MockedModel):
        def __init__(self) -> None:
            first, second, third, fourth = (MockedParam((size,), name=str(size)) for size in (1, 2, 3, 4))
            self.first = {"a": first, "b": [second, (third,)]}
            self.other = [[], {"c": {"d": fourth}}]

    assert [parameter.name for parameter in Nested().parameters()] == ["1", "2", "3", "4"]
    assert Nested().numel() == 10


class Holder:
    def __init__(self) -> None:
        self.weight = MockedParam((2,))


class Slotted:
    __slots__ = ("weight",)

    def __init__(self) -> None:
        self.weight = MockedParam((2,))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({MockedParam((2,))}, "set"),
        (Holder(), "Holder"),
        ([{"a": Holder()}], "Holder"),
        (deque([[MockedParam((2,))]]), "deque"),
        ({"a": MockedParam((2,))}.values(), "dict_values"),
        (MappingProxyType({"a": MockedParam((2,))}), "mappingproxy"),
        (SimpleNamespace(layers=[Holder()]), "SimpleNamespace"),
        (Slotted(), "Slotted"),
        ((MockedParam((2,)) for _ in range(2)), "generator"),
    ],
)
def test_parameters_in_anything_else_are_refused_by_name(value: object, kind: str) -> None:
    model = MockedModel()
    model.hidden = value  # type: ignore[attr-defined]
    said = rf"MockedModel\.hidden is a {kind} that (holds parameters|can be read once alone); allowed: "
    with pytest.raises(TypeError, match=said):
        generate(WorkloadArgs(frame="DeepSpeed", num_attention_heads=16), model=model, dialect="aicb")


def test_a_list_that_holds_itself_is_refused() -> None:
    model, loop = MockedModel(), list[object]()
    loop.append(loop)
    model.loop = loop  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="more than 50 lists within one another"):
        model.parameters()
