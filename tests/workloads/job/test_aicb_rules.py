"""Bad input: refused with the parameters, the rule and the nearest valid value, before anything is written."""

from pathlib import Path

import pytest

from tests.workloads.aicb_dialect import generate
from workloads.cli import main
from workloads.compute.aiob import read
from workloads.job.rules import divisor_near, multiple_near
from workloads.library import CompFileError, ParameterError, WorkloadArgs

DATA = Path(__file__).parents[2] / "data" / "aicb"
EXAMPLE = DATA / "aiob_example.txt"

GPT = "--world_size 8 --tp 2 --num_layers 4 --hidden_size 64 --num_attention_heads 4 --global_batch 8"
MOE = f"{GPT} --moe_enable --sp --num_experts 4 --topk 2 --ep 2"
ZERO = "--frame DeepSpeed --world_size 4 --num_layers 2 --hidden_size 64 --num_attention_heads 4 --global_batch 4"
TEST = "--frame collective_test --world_size 4 --begin_size 4096 --end_size 8192 --iter_num 2"
DEEPSEEK = f"--frame DeepSeek {MOE}"

BREAKABLE = [
    (f"{ZERO} --pp 2", ["no pipeline stages with ZeRO"]),
    (f"{ZERO} --prefetch_bucket_size 0", ["prefetch_bucket_size is 0"]),
    (f"{ZERO} --max_live_parameters 0", ["max_live_parameters is 0"]),
    (f"{ZERO} --stage 1 --reduce_bucket_size 0", ["reduce_bucket_size is 0"]),
    (f"{TEST} --iter_num=-1", ["iter_num is -1"]),
    (f"--frame DeepSeek {GPT} --num_experts 4", ["needs --moe_enable"]),
    (f"{GPT} --hidden_size 16 --swiglu", ["MLP width 0", "nearest hidden_size: 24"]),
    (f"{GPT} --global_batch 3", ["global_batch 3", "4 data-parallel ranks", "nearest: 4"]),
    (f"{GPT} --global_batch 9", ["global_batch 9", "nearest: 8 or 12"]),
    (f"{GPT} --global_batch=-4", ["global_batch -4", "nearest: 4"]),
    (f"{GPT} --num_layers 5 --pp 2 --global_batch 4", ["num_layers 5", "nearest num_layers: 4 or 6", "1 or 5"]),
    (
        f"{GPT} --num_attention_heads 6",
        ["hidden_size 64", "num_attention_heads 6", "nearest num_attention_heads: 4 or 8"],
    ),
    ("--world_size 8 --tp 2 --global_batch 8", ["num_attention_heads 24 (not given, so one per layer)"]),
    (f"{GPT} --num_attention_heads 1", ["num_attention_heads 1 must be a multiple of tensor_model_parallel_size 2"]),
    (f"{GPT} --seq_length 31", ["seq_length 31", "nearest: 30 or 32"]),
    (f"{GPT} --context_parallel_size 2", ["context_parallel_size is 2", "nearest: 1"]),
    (f"{GPT} --dtype banana", ["dtype 'banana'", "bfloat16, float16"]),
    (f"{GPT} --dtype float32", ["dtype 'float32'"]),
    (f"{GPT} --pp_rank 99", ["pp_rank 99"]),
    (f"{GPT} --epoch_num 0", ["epoch_num is 0", "nearest: 1"]),
    (f"{GPT} --overlap_grad_reduce", ["overlap_grad_reduce has no effect"]),
    (f"{GPT} --overlap_version", ["overlap_version has no effect"]),
    (f"{GPT} --comp_filepath {EXAMPLE}", ["is not read without --aiob_enable"]),
    (f"{GPT} --num_experts 4 --ep 2", ["need --moe_enable"]),
    (f"{MOE} --ep 4 --world_size 4 --global_batch 2", ["expert_model_parallel_size 4 must divide the 2", "nearest: 2"]),
    (f"{MOE} --topk 5", ["moe_router_topk 5", "from 1 to num_experts 4", "nearest: 4"]),
    (f"{MOE} --topk 0", ["moe_router_topk 0", "nearest: 1"]),
    (f"{MOE} --num_experts 0", ["num_experts is 0"]),
    (f"{ZERO} --tp 2", ["ZeRO splits nothing over tensor", "nearest: 1"]),
    (f"{ZERO} --stage 1 --contiguous_gradients", ["contiguous_gradients has no effect with stage 1"]),
    (f"{ZERO} --moe_enable --num_experts 4", ["have no meaning for frame DeepSpeed"]),
    (f"{TEST} --end_size 2048", ["end_size 2048 must be at least begin_size 4096"]),
    (f"{TEST} --test_comm barrier", ["test_comm 'barrier'", "all_reduce, all_gather"]),
]
REFUSED = [
    ("--world_size 8 --tp 3", ["world_size 8 must be a multiple", "nearest: 6 or 9"]),
    (f"{GPT} --world_size 0", ["world_size is 0; it must be at least 1"]),
    (f"{GPT} --hidden_size=-64 --num_layers=-4", ["hidden_size is -64", "num_layers is -4"]),
    (f"{GPT} --micro_batch 0", ["micro_batch is 0"]),
    (f"{GPT} --make_vocab_size_divisible_by 0", ["make_vocab_size_divisible_by is 0"]),
    (f"{GPT} --ffn_hidden_size 33", ["MLP width (ffn_hidden_size) is 33", "nearest width: 32 or 34"]),
    (f"{MOE} --sp=False", ["--moe_enable needs --enable_sequence_parallel"]),
    (f"{MOE} --num_experts 3", ["num_experts 3 must be a multiple of expert_model_parallel_size 2", "2 or 4"]),
    (f"{MOE} --dtype float16", ["'float16' does not go with expert parallelism"]),
    (f"{ZERO} --stage 2 --amp_enabled", ["amp_enabled with ZeRO stage 2"]),
    (f"{ZERO} --stage 1 --allgather_bucket_size 0", ["allgather_bucket_size is 0"]),
    (f"{TEST} --begin_size 0", ["begin_size is 0"]),
    (f"{TEST} --test_comm computation", ["test_comm 'computation'"]),
    (f"--frame DeepSeek {GPT} --num_experts 4 --ep 3", ["num_experts 4 must be a multiple"]),
]
SIMAI_REFUSED = [
    (f"{ZERO} --pp 2", ["no SimAI text for ZeRO with pipeline stages"]),
    (f"--frame DeepSeek {GPT} --num_experts 4 --aiob_enable --comp_filepath {EXAMPLE}", ["no SimAI text without"]),
    (f"{GPT} --aiob_enable", ["measures on a GPU", "--comp_filepath"]),
    (DEEPSEEK, ["DeepSeek needs --aiob_enable"]),
    (f"{TEST} --multi_all_reduce_enable 1", ["no such mode"]),
    (f"{GPT} --aiob_enable --comp_filepath missing.txt", ["missing.txt: No such file"]),
]
SIMAI_BREAKABLE = [
    (f"{GPT} --epoch_num 2", ["epoch_num is 2", "one iteration"]),
    (f"{TEST} --test_comm broadcast", ["test_comm 'broadcast'"]),
    (
        f"{DEEPSEEK} --aiob_enable --comp_filepath {EXAMPLE}",
        ["lacks the sections attention_linear_q_lora", "times are 0"],
    ),
]


def _run(command: str, arguments: str, output: Path, *more: str) -> int:
    return main([command, "--dialect", "aicb", *arguments.split(), "--output", str(output), *more])


def _of_both(csv: list[tuple[str, list[str]]], simai: list[tuple[str, list[str]]]) -> list[tuple[str, str, list[str]]]:
    return [("generate", *case) for case in csv] + [("simai", *case) for case in simai]


@pytest.mark.parametrize(("command", "arguments", "complaints"), _of_both(BREAKABLE, SIMAI_BREAKABLE))
def test_silent_errors_of_aicb_need_an_option(
    command: str, arguments: str, complaints: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "workload"
    assert _run(command, arguments, output) == 2
    message = capsys.readouterr().err
    for complaint in [*complaints, "--break_rules writes what aicb would write"]:
        assert complaint in message
    assert list(tmp_path.iterdir()) == []
    assert _run(command, arguments, output, "--break_rules") == 0
    assert output.stat().st_size > 0


@pytest.mark.parametrize(("command", "arguments", "complaints"), _of_both(REFUSED, SIMAI_REFUSED))
def test_what_aicb_cannot_do_is_refused_even_so(
    command: str, arguments: str, complaints: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for breaks in ([], ["--break_rules"]):
        assert _run(command, arguments, tmp_path / "workload", *breaks) == 2
        message = capsys.readouterr().err
        assert all(complaint in message for complaint in complaints), message
        assert "Traceback" not in message
        assert list(tmp_path.iterdir()) == []


def test_forced_output_is_what_aicb_writes() -> None:
    """A batch too small for the ranks: no micro-batches, only set-up and step."""
    forced = generate(WorkloadArgs(world_size=8, num_attention_heads=16, global_batch=4), break_rules=True)
    assert [item.stage.partition(".")[0] for item in forced.epoch(1)] == ["step", "step", "step", ""]


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ParameterError) as caught:
        generate(WorkloadArgs(world_size=8, num_attention_heads=7, global_batch=3, dtype="int8", pp_rank=4))
    assert len(caught.value.problems) == 5  # four rules and how to break them


def test_nearest_values() -> None:
    assert divisor_near(12, 5) == "4 or 6"
    assert divisor_near(12, 99) == "12"
    assert divisor_near(12, 4) == "4"
    assert divisor_near(10**12 + 39, 5) == "1 or 1000000000039", "a prime takes no days"
    assert multiple_near(10, 4) == "8 or 12"
    assert multiple_near(-3, 4) == "4"


def test_example_file_decodes_as_aicb_does() -> None:
    times = read(EXAMPLE)
    assert times.attention_ns() == 1_820_000
    assert times.attention_ns(recompute=True) == 2_332_000
    assert times.mlp_ns() == 2_478_000
    assert (times.minimum_ns("param_time"), times.average_ns("param_time")) == (16_647_000, 17_374_000)


def test_exponents_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    path.write_text(EXAMPLE.read_text().replace("time_gpu_avg: 799", "time_gpu_avg: 7.5e2"))
    assert read(path).average_ns("Emb") == 750_000


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("atten_qkv:", "atten_qkw:", "line 10: unknown section 'atten_qkw'; did you mean atten_qkv?"),
        ("train_iter:10", "iter:10", "line 1: 'iter:10' is not 'train_iter:'"),
        ("train_iter:10", "train_iter:1²", "line 1: 'train_iter:1²' is not 'train_iter:'"),
        ("train_iter:10", f"train_iter:{'9' * 5000}", "line 1: 'train_iter:99999"),
        ("    time_gpu_min: 782\n", "", "section 'Emb' lacks time_gpu_min"),
        ("time_gpu_min: 782", "time_gpu_median: 782", "line 4: 'time_gpu_median' is none of"),
        ("time_gpu_min: 782", "time_gpu_min: -782", "line 4: time_gpu_min is '-782'; expected a time in microseconds"),
        ("time_gpu_min: 782", "time_gpu_min: fast", "expected a time"),
        ("layernorm2:", "layernorm:", "section 'layernorm' is there twice"),
        ("Emb:", "Emb: 3", "'Emb' has a value"),
        ("Emb:\n", "", "line 2: 'time_gpu_max' stands before the first section"),
        ("Emb:", "Emb", "is neither 'section:' nor 'statistic: value'"),
    ],
)
def test_a_broken_description_file_is_named(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    content = EXAMPLE.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises(CompFileError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert complaint in str(caught.value)


def test_a_missing_section_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "times.txt"
    head, _, tail = EXAMPLE.read_text().partition("logit_time:")
    path.write_text(head + tail[tail.index("param_time:") :])
    output = tmp_path / "out.txt"
    assert _run("simai", f"{GPT} --aiob_enable --comp_filepath {path}", output, "--break_rules") == 2
    assert "lacks the sections logit_time" in capsys.readouterr().err
    assert not output.exists()
