"""The command line: files, names, notes, suite, summary and help."""

import json
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from workloads.cli import main
from workloads.commands.suite_rows import ROWS
from workloads.job.naming import default_path
from workloads.library import ParameterError, SimaiWorkload, Workload, WorkloadArgs, generate
from workloads.options import OPTIONS

ROOT = Path(__file__).parents[2]
GPT = "--world_size 8 --tp 2 --num_layers 4 --hidden_size 64 --num_attention_heads 4 --global_batch 8 --seq_length 32"


def _out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_help_explains_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    overview = _out(capsys, "--help")
    for command in ("generate", "simai", "suite", "show", "deviations"):
        assert f"\n  {command}" in overview
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: .venv/bin/python -m workloads {command} ")
    assert main([]) == 2
    assert main(["genrate"]) == 2
    assert "did you mean generate?" in capsys.readouterr().err


def test_every_parameter_is_an_option() -> None:
    assert set(OPTIONS) == set(WorkloadArgs().to_dict())


def test_default_names_tell_workloads_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    variants = [
        "", "--tp 1", "--pp 2", "--sp", "--seq_length 64", "--micro_batch 2", "--global_batch 16", "--swiglu",
        "--use-distributed-optimizer", "--add_bias_linear", "--epoch_num 2", "--vocab_size 999", "--dialect aicb",
        "--dialect aicb --computation_enable", "--model_name llama3.1", "--model_name llama3.2",
        "--model_name a*b/c", "--model_name " + 300 * "long",
    ]  # fmt: skip
    for variant in variants:
        assert main(["generate", *GPT.split(), *variant.split()]) == 0
    written = list(Path("results/mocked_workload").glob("*_workload.csv"))
    assert len(written) == len(variants)
    assert all(set(path.name).isdisjoint("*/ ") for path in written)
    assert main(["simai", *GPT.split()]) == 0
    assert len(list(Path("results/workload").glob("*.txt"))) == 1


@pytest.mark.parametrize("name", sorted(set(WorkloadArgs().to_dict()) - {"workload_only", "enable_visual"}))
def test_every_parameter_is_in_the_name(name: str) -> None:
    base = WorkloadArgs(world_size=8)
    value = getattr(base, name)
    other: object = "other"
    if isinstance(value, bool):
        other = not value
    elif isinstance(value, int) or name in ("num_attention_heads", "ffn_hidden_size"):
        other = (value or 0) + 1
    changed = replace(base, **{name: other})  # type: ignore[arg-type]
    assert default_path(base, "csv", "aicb") != default_path(changed, "csv", "aicb")


def test_model_size_fills_in_and_options_win(tmp_path: Path) -> None:
    output = tmp_path / "w.csv"
    aicb = ["generate", "--dialect", "aicb", "--break_rules", "--force"]
    assert main([*aicb, "-m", "13", "--world_size", "16", "--output", str(output)]) == 0
    args = Workload.load(output)[1]
    assert args is not None
    assert (args.num_layers, args.hidden_size, args.num_attention_heads, args.seq_length) == (40, 5120, 40, 2048)
    assert args.num_microbatches == 2
    assert main([*aicb, "-m", "7", "--world_size", "16", "--tp", "2", "--output", str(output)]) == 0
    args = Workload.load(output)[1]
    assert args is not None
    assert (args.tensor_model_parallel_size, args.num_layers) == (2, 36)
    assert main([*aicb, "-m", "65", "--frame", "DeepSpeed", "--zero_stage", "1", "--output", str(output)]) == 0
    args = Workload.load(output)[1]
    assert args is not None
    assert (args.stage, args.ffn_hidden_size, args.vocab_size) == (1, 22016, 32000)


def test_model_size_gives_what_aicbs_script_gives(tmp_path: Path) -> None:
    """The recorded run of the script's -m 7 with the script's own short options."""
    index = (ROOT / "tests/data/aicb/INDEX.tsv").read_text().splitlines()
    arguments = next(line.split("\t")[3] for line in index if "simai_gpt7b_ws4096_tpPreset_sp_noaiob" in line)
    script = (
        "-m 7 --world_size 4096 --global_batch 8192 --micro_batch 1 --seq_length 4096 --swiglu --use_flash_attn --sp"
    )
    for words, name in ((arguments, "long"), (script, "short")):
        assert main(["simai", "--dialect", "aicb", *words.split(), "--output", str(tmp_path / name)]) == 0
    assert (tmp_path / "short").read_bytes() == (tmp_path / "long").read_bytes()


def test_a_preset_for_another_frame_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--dialect", "aicb", "-m", "405", "--frame", "DeepSpeed"]) == 2
    assert "there is no model_size '405' for --frame DeepSpeed; there is 7, 13, 30, 65" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--worldsize", "8"], "did you mean --world_size?"),
        (["--frame", "Megatorn"], "invalid choice"),
        (["--aiob_enable=perhaps"], "invalid True or False value: 'perhaps'"),
        (["--world_size", "many"], "invalid whole number value: 'many'"),
        (["--reduce_bucket_size", "1.5"], "invalid whole number value: '1.5'"),
        (["--stage", "4"], "invalid choice"),
    ],
)
def test_misspelt_options_are_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", *words]) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1


def test_all_mistakes_of_a_command_line_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--world_size", "many", "--stage", "4", "--tpp", "2", "--swiglu=perhaps"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2].split(" (")[0] for line in said] == [
        "argument --world_size", "argument --stage/--zero_stage", "argument --swiglu", "unrecognized arguments"
    ]  # fmt: skip
    assert all(line.startswith("error: generate: ") for line in said) and "did you mean --tp?" in said[-1]


def test_options_without_effect_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", *GPT.split(), "--use_flash_attn", "--stage", "2", "--output", str(tmp_path / "w.csv")]
    assert main(words) == 0
    assert capsys.readouterr().err == "note: no effect on this workload: --stage, --use_flash_attn\n"


@pytest.mark.parametrize("stage", ["1", "2", "3"])
def test_clipping_is_said_to_have_no_effect_where_it_changes_no_row(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", "-m", "7", "--frame", "DeepSpeed", "--stage", stage, "--world_size", "8"]
    words.append("--computation_enable")
    told = []
    for value in ("0", "1.5"):
        assert main([*words, "--clip_grad", value, "--output", str(tmp_path / value)]) == 0
        told.append("--clip_grad" in capsys.readouterr().err)
    sent, other = (Workload.load(tmp_path / value)[0] for value in ("0", "1.5"))
    assert told == [[*sent] == [*other]] * 2


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        ("--max_position_embeddings 8192 --workload_only --pp_rank 0", "max_position_embeddings pp_rank workload_only"),
        ("--position_embedding learned_absolute --max_position_embeddings 8192", ""),
        ("--moe_grouped_gemm --computation_enable", "moe_grouped_gemm"),
        ("--moe_grouped_gemm --computation_enable --moe_enable --num_experts 4", ""),
        ("--sliding_window 4096 --computation_enable", "sliding_window"),
        ("--frame FSDP2 --sliding_window 1024 --full_attention_every 2 --computation_enable", ""),
        ("--frame FSDP2 --sliding_window 1024 --full_attention_every 99 --computation_enable", "full_attention_every"),
        ("--activation_recompute full", "activation_recompute"),
        ("--activation_recompute full --every_stage --sliding_window 8", "sliding_window"),
        ("--frame DeepSpeed --stage 2 --sub_group_size 5", "sub_group_size"),
        # These say what is usual, and what each job has.
        ("--tp 1 --pp 1 --micro_batch 1 --hidden_size 1024 --seq_length 2048 --dtype bfloat16", ""),
    ],
)
def test_options_without_which_the_rows_stay_the_same_are_told(
    words: str, idle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = ["generate", "--world_size", "8", "--global_batch", "8", *words.split(), "--output", str(tmp_path)]
    assert main(started) == 0
    told = capsys.readouterr().err.rpartition("workload: ")[2].replace("--", "").replace(",", "")
    assert told.split() == idle.split()


def test_deepspeed_refuses_fp8_that_none_of_its_rows_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "-m", "7", "--frame", "DeepSpeed", "--world_size", "8", "--fp8_recipe", "delayed"]
    assert main([*words, "--output", str(tmp_path / "w.csv")]) == 2
    assert "fp8_recipe is 'delayed'; frame DeepSpeed has none" in capsys.readouterr().err


def test_dashes_and_unambiguous_beginnings_of_names_do(tmp_path: Path) -> None:
    short = "--context=1 --recomp --use-dist --num-attention-heads=16 --seq_len 1024 --output"
    full = (
        "--context-parallel-size 1 --recompute_activations --use_distributed_optimizer --num_attention_heads 16 "
        "--seq_length=1024 --output"
    )
    outputs = tmp_path / "dash-ed", tmp_path / "full"
    for words, output in zip((short, full), outputs, strict=True):
        assert main(["generate", *words.split(), str(output)]) == 0
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_large_numbers_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    words = ["--world_size", "4", "--overlap_grad_reduce", "--bucket_size", "2e8", "--vocab_size", "1.024e3"]
    assert main(["generate", *words, "--output", str(tmp_path / "w.csv")]) == 0
    args = Workload.load(tmp_path / "w.csv")[1]
    assert args is not None
    assert (args.bucket_size, args.vocab_size) == (200_000_000, 1024)


def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["generate", *GPT.split(), "--output", str(tmp_path / "file" / "w.csv")]) == 1
    assert f"error: {tmp_path}/file/w.csv: " in capsys.readouterr().err
    assert main(["generate", *GPT.split(), "--output", "/dev/full"]) == 1
    assert "error: /dev/full: No space left on device" in capsys.readouterr().err


def test_standard_output_can_be_the_file() -> None:
    words = [sys.executable, "-m", "workloads", "generate", *GPT.split(), "--output", "/dev/stdout"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("comm_type,comm_group,")
    assert done.stdout.splitlines()[-1].startswith("CommType.epoch_end,None,None,0,,None,None,,None,None,None,1")
    assert done.stderr.startswith("wrote -: ")


def test_generating_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from workloads.cli import main; "
        f"main(['generate', *'{GPT}'.split(), '--output', '/dev/null']); "
        "print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_suite_writes_all_rows_with_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = _out(capsys, "suite", "--dialect", "aicb", "--world_size", "128", "--output_dir", str(tmp_path))
    assert [line.split("]")[0] for line in out.splitlines()] == [f"[{number}/10" for number in range(1, 11)]
    files = sorted(tmp_path.glob("*_workload.csv"))
    assert len(files) == len(ROWS) == 10
    by_number = {int(path.name[:2]): Workload.load(path)[1] for path in files}
    spec = by_number[9]
    assert spec is not None
    assert (spec.stage, spec.seq_length, spec.max_live_parameters) == (3, 4096, 600_000_000)
    assert {args.world_size for args in by_number.values() if args} == {128}


def test_suite_rows_that_were_recorded_are_the_recorded_ones(tmp_path: Path) -> None:
    """Rows 5 to 8 and their recorded runs have the same parameters."""
    words = ["suite", "--dialect", "aicb", "--world_size", "128", "--rows", "5,6,8", "--output_dir", str(tmp_path)]
    assert main(words) == 0
    recorded = {
        5: "gpt175b_tp8_pp8_ws128_sp_do_suite5",
        6: "gpt175b_tp8_pp8_ws128_do_suite6",
        8: "ds_z2_llama7b_ws128_suite8",
    }
    for number, name in recorded.items():
        (path,) = tmp_path.glob(f"{number:02d}-*_workload.csv")
        assert path.read_bytes() == lzma.decompress((ROOT / f"tests/data/aicb/csv/{name}.csv.xz").read_bytes())


def test_suite_on_too_few_gpus_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite", "--world_size", "64", "--output_dir", str(tmp_path / "suite")]) == 2
    assert "row 7 (Llama3_405B): world_size 64 must be a multiple" in capsys.readouterr().err
    assert not (tmp_path / "suite").exists()
    assert main(["suite", "--world_size", "64", "--rows", "11", "--output_dir", str(tmp_path / "suite")]) == 2
    assert "row 11 is none of the rows 1 to 10" in capsys.readouterr().err
    assert main(["suite", "--world_size", "128", "--rows", "a,b"]) == 2
    assert "argument --rows: 'a,b' is no list of rows like 1,2,8" in capsys.readouterr().err


def test_the_suite_of_the_framework_has_the_layers_of_the_specification(tmp_path: Path) -> None:
    assert main(["suite", "--world_size", "128", "--output_dir", str(tmp_path)]) == 0
    made = {int(path.name[:2]): Workload.load(path)[1] for path in tmp_path.glob("*_workload.csv")}
    layers = [made[number].num_layers for number in sorted(made)]  # type: ignore[union-attr]
    assert layers == [32, 40, 48, 80, 96, 96, 126, 32, 80, 32]
    large = made[7]
    assert large is not None and large.num_layers_first_stage == large.num_layers_last_stage == 7


def test_suite_writes_simai_text_too(tmp_path: Path) -> None:
    words = ["suite", "--world_size", "64", "--target", "simai", "--output_dir", str(tmp_path)]
    assert main([*words, "--rows", "2"]) == main([*words, "--rows", "9", "--dialect", "aicb"]) == 0
    headers = [SimaiWorkload.load(path).header for path in sorted(tmp_path.glob("*.txt"))]
    assert [header.tp for header in headers if header] == [2, 1]


def test_show_summarises_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.csv"
    main(["generate", "--dialect", "aicb", *GPT.split(), "--epoch_num", "3", "--output", str(path)])
    capsys.readouterr()
    text = _out(capsys, "show", str(path))
    assert "iterations: 3" in text
    assert "forward.MegatronRowLinear" in text
    facts = json.loads(_out(capsys, "show", str(path), "--json"))
    workload, _ = Workload.load(path)
    assert facts["rows"] == len(workload)
    assert facts["communication_bytes"] == workload.total_bytes
    assert sum(entry["bytes"] for entry in facts["by_stage"]) == workload.total_bytes
    assert facts["args"]["epoch_num"] == 3


def test_show_summarises_a_simai_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.txt"
    main(["simai", "--dialect", "aicb", *GPT.split(), "--output", str(path)])
    capsys.readouterr()
    assert "header: tp 2, ep 1, pp 1, vpp 4, ga 2, all_gpus 8" in _out(capsys, "show", str(path))
    facts = json.loads(_out(capsys, "show", str(path), "--json"))
    text = SimaiWorkload.load(path)
    reduced = sum(item.forward.size for item in text if item.forward.comm == "ALLREDUCE")
    assert {"phase": "forward", "collective": "ALLREDUCE"} in [
        {key: entry[key] for key in ("phase", "collective")} for entry in facts["by_phase_and_collective"]
    ]
    assert next(entry["bytes"] for entry in facts["by_phase_and_collective"]
                if (entry["phase"], entry["collective"]) == ("forward", "ALLREDUCE")) == reduced  # fmt: skip


def test_show_refuses_what_is_no_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / "missing")]) == 2
    assert "missing: No such file or directory" in capsys.readouterr().err


def test_deviations_are_listed_once_each_and_named_where_they_happen(capsys: pytest.CaptureFixture[str]) -> None:
    names = [line for line in _out(capsys, "deviations").splitlines() if not line.startswith(" ")]
    assert len(names) == len(set(names)) > 30
    assert "pipeline_double_step" in names
    code = "".join(path.read_text() for path in (ROOT / "workloads/dialects/aicb").glob("[!d]*.py"))
    assert [name for name in names if f"`{name}`" not in code] == []


def test_the_framework_is_the_default_of_all_that_writes(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    for name, words in (("", []), ("given", ["--dialect", "framework"])):
        assert main(["generate", *GPT.split(), *words, "--output", str(tmp_path / name / "w.csv")]) == 0
        assert main(["simai", *GPT.split(), *words, "--output", str(tmp_path / name / "w.txt")]) == 0
        suite = ["suite", "--world_size", "8", "--rows", "1", "--output_dir", str(tmp_path / name / "suite")]
        assert main([*suite, *words]) == 0
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv") if "given" not in path.parts)
    for file in [*files, Path("w.txt")]:
        assert (tmp_path / file).read_bytes() == (tmp_path / "given" / file).read_bytes()
    assert len(files) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--frame collective_test", "frame collective_test is not in the dialect framework; --dialect aicb has"),
        ("--frame DeepSeek", "frame DeepSeek is not in the dialect framework; --dialect aicb has"),
        ("--moe_enable --num_experts 4 --moe_token_dispatcher flex", "--dialect aicb has an all_to_all of its own"),
        ("--aiob_enable", "`compute fill` times the rows of --computation_enable; --dialect aicb has it"),
    ],
)
def test_what_the_default_cannot_do_names_the_dialect_that_can(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.csv"
    assert main(["generate", *GPT.split(), *words.split(), "--output", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert not path.exists()


def shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_has_the_options_and_defaults_of_the_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = shown(["generate"], capsys), shown(["generate", "--dialect", "aicb"], capsys)
    assert "gathered ahead at once (default: 50000000)" in ours
    assert "gathered ahead at once (default: 1000000000)" in theirs
    assert "attention heads (default: one per 128 of the width)" in ours and "llama3_405b" in ours
    assert "attention heads (default: as many as layers)" in theirs and "llama3_405b" not in theirs
    for name in ("test_comm", "openai_gelu", "n_dense_layers"):
        assert f"--{name}" not in ours, "it changes no row of this dialect"
    for name in ("fsdp_units", "virtual_pipeline", "bias_gelu_fusion"):
        assert f"--{name}" not in theirs
    assert "--test_comm" in theirs and "--n_dense_layers" in theirs and "--fsdp_units" in ours
    assert "--gpu_type" in shown(["simai", "--dialect=aicb"], capsys), "it is in the name of a SimAI text"


def test_trace_has_each_parameter_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(["trace"], capsys)
    for name in ("--recompute ", "--qk_head_dim", "--qk_pos_emb_head_dim", "--epoch_num", "--pp_rank", "--openai_gelu"):
        assert name not in text
    for name in ("--activation_recompute", "--qk_nope_dim", "--qk_rope_dim", "--iterations", "--pp_stage"):
        assert name in text


@pytest.mark.parametrize("dialect", ["framework", "aicb"])
def test_a_phase_that_is_none_is_refused(dialect: str) -> None:
    with pytest.raises(ParameterError, match="phase 'middle' is none of training, prefill, decode; nearest: "):
        generate(WorkloadArgs(world_size=2, phase="middle"), dialect=dialect)
