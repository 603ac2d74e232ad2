"""Every recorded output of AICB, byte for byte, through the command line."""

import hashlib
import lzma
from pathlib import Path

import pytest

from workloads.cli import main

DATA = Path(__file__).parents[3] / "data" / "aicb"
BREAK_RULES = {"simai_deepseek16_readme_ws2048_ep16_aiobExample.txt", "p_epoch0.workload.csv"}


def _cases() -> list[tuple[str, str, str]]:
    """File, its sha256 and the arguments."""
    index = [line.split("\t") for line in (DATA / "INDEX.tsv").read_text().splitlines()[1:]]
    return [(file, sha256, arguments) for file, _, sha256, arguments in index]


def _physical_cases() -> list[tuple[str, str]]:
    index = [line.split("\t") for line in (DATA / "physical" / "INDEX.tsv").read_text().splitlines()[1:]]
    return [(file, arguments) for file, arguments in index]


def _run(command: str, arguments: str, output: Path, breaks: bool) -> None:
    words = arguments.replace("aiob_example.txt", str(DATA / "aiob_example.txt")).split(" ")
    assert (
        main([command, "--dialect", "aicb", *words, "--output", str(output), *(["--break_rules"] if breaks else [])])
        == 0
    )


def _compare(written: bytes, recorded: bytes) -> None:
    """Fails with the first line that differs, which pytest's own comparison of megabytes would bury."""
    for number, (ours, theirs) in enumerate(zip(written.split(b"\n"), recorded.split(b"\n"), strict=False), start=1):
        assert ours == theirs, f"line {number}"
    assert written == recorded


@pytest.mark.parametrize(("file", "sha256", "arguments"), _cases(), ids=lambda value: value if "." in value else "")
def test_recorded_output_is_reproduced(file: str, sha256: str, arguments: str, tmp_path: Path) -> None:
    folder, name = file.split("/")
    output = tmp_path / name
    _run("generate" if folder == "csv" else "simai", arguments, output, breaks=name in BREAK_RULES)
    written = output.read_bytes()
    _compare(written, lzma.decompress((DATA / folder / f"{name}.xz").read_bytes()))
    assert hashlib.sha256(written).hexdigest() == sha256


@pytest.mark.parametrize(("file", "arguments"), _physical_cases(), ids=[file for file, _ in _physical_cases()])
def test_workload_of_a_physical_run_is_reproduced(file: str, arguments: str, tmp_path: Path) -> None:
    output = tmp_path / file
    _run("generate", arguments, output, breaks=file in BREAK_RULES)
    _compare(output.read_bytes(), lzma.decompress((DATA / "physical" / f"{file}.xz").read_bytes()))


@pytest.mark.parametrize(
    "file", ["csv/gpt175b_tp8_pp8_ws128_sp_do_suite5.csv", "simai/simai_moe_ws4096_ep8_e8_noaiob.txt"]
)
def test_breaking_rules_changes_nothing_on_a_valid_command(file: str, tmp_path: Path) -> None:
    arguments = next(arguments for name, _, arguments in _cases() if name == file)
    command = "generate" if file.startswith("csv") else "simai"
    for breaks in (False, True):
        _run(command, arguments, tmp_path / str(breaks), breaks)
    assert (tmp_path / "True").read_bytes() == (tmp_path / "False").read_bytes()


def test_both_spellings_of_an_option_mean_the_same(tmp_path: Path) -> None:
    arguments = next(arguments for name, _, arguments in _cases() if name == "csv/gpt13b_tp2_pp1_ws8_sp.csv")
    _run("generate", arguments, tmp_path / "equals", breaks=False)
    _run("generate", arguments.replace("=", " "), tmp_path / "blank", breaks=False)
    assert (tmp_path / "blank").read_bytes() == (tmp_path / "equals").read_bytes()


@pytest.mark.parametrize(
    ("command", "sizes"),
    [
        ("all_gather", (4096, 1 << 30)),
        ("all_reduce", (4096, 1 << 30)),
        ("all_to_all", (4096, 1 << 30)),
        ("reduce_scatter", (4096, 1 << 30)),
        ("broadcast_NONE_bug", (4096, 8192)),
    ],
)
def test_micro_tests_are_reproduced(command: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    recorded = DATA / "unit" / f"simai_micro_{command}.txt"
    comm = command.removesuffix("_NONE_bug")
    begin, end = sizes
    arguments = f"--frame collective_test --test_comm {comm} --begin_size {begin} --end_size {end}"
    _run("simai", arguments, tmp_path / "micro.txt", breaks=comm == "broadcast")
    assert (tmp_path / "micro.txt").read_text().rstrip("\n") == recorded.read_text().rstrip("\n")


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_aiob_times_fill_the_computation_rows(sequence_parallel: bool, tmp_path: Path) -> None:
    recorded = DATA / "unit" / f"aiob_applied_gpt7b_tp2{'_sp' if sequence_parallel else ''}.csv"
    arguments = (
        "--world_size 8 --tp 2 --num_layers 4 --hidden_size 4096 --num_attention_heads 32 --vocab_size 50257 "
        "--seq_length 4096 --global_batch 4 --use-distributed-optimizer --aiob_enable --comp_filepath aiob_example.txt "
        f"--sp={sequence_parallel}"
    )
    _run("generate", arguments, tmp_path / "applied.csv", breaks=False)
    _compare((tmp_path / "applied.csv").read_bytes(), recorded.read_bytes())
