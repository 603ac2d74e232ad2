"""Runs the torchrun lines of docs/how-to/from-aicb.md at a tiny size on two gloo ranks, and plans its cases of GPUs."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.arguments import parse_arguments
from protocol.case_config import load_case_config
from tests.tiers import NIGHTLY
from tests.workloads.test_from_aicb import PAGE, ROOT
from training.benchmarks.aicb.pytorch.config import ENTRY_MODULE, Config
from workloads.library import Log
from workloads.oplog.file import read_folder

LINES = [text for text in re.findall(r"`([^`]+)`", PAGE) if text.startswith("torchrun ") and "..." not in text]
TINY = {
    "num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 128, "num_attention_heads": 4, "vocab_size": 512,
    "seq_length": 32, "micro_batch": 1, "global_batch": 2,
}  # fmt: skip


def words(line: str) -> tuple[list[str], list[str]]:
    """The words of a line before the workload's own, and those."""
    launcher, _, own = line.partition(" -- ")
    return shlex.split(launcher), shlex.split(own)


@pytest.mark.parametrize("line", LINES)
def test_each_torchrun_line_is_a_job_of_the_gpus_that_it_names(line: str) -> None:
    launcher, own = words(line)
    assert launcher[:2] == ["torchrun", "--nproc_per_node"] and launcher[3:] == ["-m", ENTRY_MODULE]
    arguments = parse_arguments("aicb", own)
    assert arguments.vendor is not None and (ROOT / "vendors" / arguments.vendor).is_dir()
    config = load_case_config(Config, arguments.config_file, arguments.overrides)
    assert config.refusal(nnodes=1, nproc=int(launcher[2])) is None
    assert (config.refusal(nnodes=1, nproc=3) is None) == ("tensor_model_parallel_size" not in config.given())


def test_the_torchrun_lines_run_on_two_ranks(tmp_path: Path) -> None:
    """A line keeps its words, but for ranks, vendor and the parallel size, and becomes small. All at once by night."""
    assert len(LINES) == 2
    running = []
    for number, line in enumerate(LINES if NIGHTLY else LINES[:1]):
        _, own = words(line)
        own = ["cpu" if word == "nvidia" else word.replace("parallel_size=8", "parallel_size=2") for word in own]
        small = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
        argv = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc_per_node", "2"]
        folder = tmp_path / str(number)
        folder.mkdir()
        argv += ["-m", ENTRY_MODULE, "--", *own, *small, "--output_dir", str(folder)]
        output = (folder / "output").open("w")
        running.append((folder, subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=output)))
    for folder, process in running:
        assert process.wait(timeout=240) == 0, (folder / "output").read_text()[-3000:]
        logs = read_folder(folder)
        assert [log.facts.rank for log in logs] == [0, 1]
        log = Log.load(folder / "workload_log.csv")
        assert len(log.epoch_times) == 2 and log.comm_log_each_epoch[1]
    frames = [read_folder(folder)[0].facts.frame for folder, _ in running]
    assert frames == ["Megatron", "DeepSpeed"][: len(running)]


def test_the_cases_of_the_page_are_planned(tmp_path: Path) -> None:
    folder = next(text for text in re.findall(r"`([^`]+)`", PAGE) if text.endswith("aicb-pytorch/config"))
    named = [Path(text).stem for text in re.findall(r"`([^`]+)`", PAGE) if text.startswith(f"{folder}/")]
    suite = sorted(path.stem for path in (ROOT / folder).glob("config_suite*.py"))
    cases = {f"CASE{number}": config for number, config in enumerate([*named, *suite])}
    text = f'VENDOR, RUNTIME, CASES = "nvidia", "process", {list(cases)}\n' + "".join(
        f"{name} = {json.dumps({'model': 'aicb', 'framework': 'pytorch', 'config': config, 'repeat': 1} | SIZE)}\n"
        for name, config in cases.items()
    )
    (tmp_path / "test_conf.py").write_text(text)
    hosts = [f"gpu{number}" for number in range(SIZE["nnodes"])]
    (tmp_path / "cluster_conf.py").write_text(f"HOSTS = {hosts}\n")
    start = ".venv/bin/python run_benchmarks/run.py"
    command = next(text for text in re.findall(r"`([^`]+)`", PAGE) if text.startswith(start))
    argv = [sys.executable, *shlex.split(command)[1:], "--test-conf", str(tmp_path / "test_conf.py")]
    argv += ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "plan"]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [case["name"] for case in json.loads(result.stdout)["cases"]] == list(cases)


SIZE = {"nnodes": 16, "nproc": 8}
"""The world of AICB's suite: 128 GPUs."""
