"""`run.py import-flagperf`: a FlagPerf tree becomes files that `run.py plan` takes, with a line for every key."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocol.case_config import trace_case_config
from protocol.problems import Problem
from run_benchmarks.commands import cli
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import ConfigError
from run_benchmarks.flagperf import keys
from run_benchmarks.flagperf.reading import read_conf
from run_benchmarks.flagperf.translation import Translation, translate
from run_benchmarks.plan.code_bundle import PARTS
from training.benchmarks.catalog import benchmark

TREE = Path(__file__).parents[2] / "data" / "flagperf" / "tree"
CONFIGS = Path("vendors/nvidia")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree, to be spoilt."""
    return shutil.copytree(TREE, tmp_path / "tree")


def mistakes(tree: Path) -> list[str]:
    return [str(problem).replace(f"{tree}/", "") for problem in translate(tree).problems]


def change(tree: Path, file: str, old: str, new: str) -> None:
    path = tree / "training" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def outcomes(done: Translation, file: str) -> dict[str, str]:
    return {line.key: f"{line.outcome} {line.note}".rstrip() for line in done.lines if str(line.file).endswith(file)}


def settings(text: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(text, names)
    del names["__builtins__"]
    return names


def test_the_translated_tree_passes_plan(tmp_path: Path) -> None:
    """In a copy of the repository, as a user has it: the first time, and again over what is there."""
    root = tmp_path / "repository"
    for package in (*PARTS, "run_benchmarks", "container"):
        shutil.copytree(
            ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
        )
    shutil.copytree(ROOT / "requirements", root / "requirements")
    run_py = [sys.executable, str(root / "run_benchmarks" / "run.py")]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*run_py, *words], capture_output=True, text=True, timeout=120, cwd=tmp_path)

    refused = call("import-flagperf", str(TREE))
    assert refused.returncode == 2 and "is there and differs; --overwrite replaces it" in refused.stderr
    assert "glm-pytorch/config/environment_variables.env" in refused.stderr
    assert not list(root.rglob("*flagperf_*conf.py")), "something was written beside a mistake"
    answer = call("import-flagperf", str(TREE), "--overwrite")
    assert answer.returncode == 0, answer
    config = root / "run_benchmarks" / "config"
    files = ("--cluster-conf", f"{config}/flagperf_cluster_conf.py", "--test-conf", f"{config}/flagperf_test_conf.py")
    planned = call(*files, "plan")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert [(case["model"], case["nnodes"], len(case["rounds"])) for case in plan["cases"]] == [
        ("bert", 1, 1), ("glm", 1, 2), ("cpm", 2, 1), ("llama", 1, 1),
    ]  # fmt: skip
    node = plan["cases"][1]["rounds"][0]["nodes"][0]
    assert node["options"]["gpus"] == "all" and node["options"]["cap_add"] == ["IPC_LOCK"]
    assert node["workload"]["environment"]["NCCL_IB_HCA"] == "mlx5_0,mlx5_1"
    assert node["workload"]["environment"]["NCCL_DEBUG"] == "WARN", "our own variables are lost"
    assert plan["cases"][2]["requirements"] == ["sentencepiece>=0.1.8", "jieba"]
    again = call("import-flagperf", str(TREE))
    assert again.returncode == 0, again.stderr


def test_every_key_of_the_tree_has_a_line() -> None:
    done = translate(TREE)
    assert done.problems == []
    told = {(line.file, line.key) for line in done.lines}
    for file in sorted((TREE / "training").rglob("*.py")):
        parts = file.relative_to(TREE / "training").parts
        if parts[0] in ("kunlunxin", "iluvatar") or file.name.endswith("_common.py"):
            continue
        conf = read_conf(file, (), [])
        assert conf is not None
        missing = {key for key in {*conf.values, *conf.computed} if key != "CASES" and (file, key) not in told}
        assert missing == set(), file


def test_a_case_config_is_what_flagperf_makes_of_base_and_vendor_s_file() -> None:
    done = translate(TREE)
    bert = settings(done.files[CONFIGS / "bert-pytorch/config/config_A100x1x8_flagperf.py"])
    assert bert["train_batch_size"] == bert["eval_batch_size"] == 24  # through two `import *`
    assert (bert["optimizer"], bert["beta1"], bert["precision"]) == ("lamb", 0.9, "fp16")
    assert (bert["max_steps"], bert["lr_decay_steps"]) == (7500, 30000)  # it ends by micro-steps, 4 of which are a step
    assert bert["eval_interval_samples"] is None and "eval_start_samples" not in bert
    glm = settings(done.files[CONFIGS / "glm-pytorch/config/config_A100x1x8_flagperf.py"])
    assert (glm["learning_rate"], glm["min_lr_ratio"], glm["max_samples"]) == (1e-5, 0.1, 5553080)
    assert (glm["eval_interval_samples"], glm["max_grad_norm"]) == (19200, 1.0)
    cpm = settings(done.files[CONFIGS / "cpm-pytorch/config/config_A100x2x8_flagperf.py"])
    assert (cpm["init_loss_scale"], cpm["target_embedding_average"]) == (4096, 0.92) and "beta2" not in cpm
    llama = settings(done.files[CONFIGS / "llama-pytorch/config/config_A100x1x8_flagperf.py"])
    assert (llama["seq_length"], llama["peak_tflops"], llama["attention"]) == (4096, 312.0, "flash_attention_2")


@pytest.mark.parametrize(
    ("model", "config"),
    [("bert", "A100x1x8"), ("glm", "A100x1x8"), ("cpm", "A100x2x8"), ("llama", "A100x1x8")],
)
def test_a_translated_config_has_no_value_of_our_base(model: str, config: str, tmp_path: Path) -> None:
    """What FlagPerf's files leave out is not filled with the values that our own configs begin with."""
    done = translate(TREE)
    path = tmp_path / "config.py"
    path.write_text(done.files[CONFIGS / f"{model}-pytorch/config/config_{config}_flagperf.py"])
    config_class = benchmark(model, "pytorch").config_class
    loaded = trace_case_config(config_class, path, {})
    alone = config_class.model_validate(settings(path.read_text()))
    assert loaded.config == alone
    assert {Path(origin).name for origin in loaded.origins.values()} == {"config.py", "default"}
    added = {line.key for line in done.lines if "base.py of this benchmark has" in line.note}
    assert {"init_checkpoint", "log_freq", "num_workers"} & added


def test_what_became_of_a_key_is_said() -> None:
    done = translate(TREE)
    glm = outcomes(done, "nvidia/glm-pytorch/config/config_A100x1x8.py")
    assert glm["lr"] == "renamed learning_rate = 1e-05" and glm["seed"] == "kept"
    assert glm["training_event"] == "meaningless an object of FlagPerf's own code"
    bert = outcomes(done, "bert-pytorch/config/config_A100x1x8.py")
    assert bert["site_note"].startswith("unknown") and bert["grad_scaler"].startswith("meaningless")
    assert outcomes(done, "cluster_conf.py")["HOSTS_PORTS"].startswith("meaningless ports of TensorFlow")
    cases = outcomes(done, "test_conf.py")
    assert cases["resnet50:pytorch_1.8:A100:1:8:1"] == "left out there is no model 'resnet50' here"
    assert cases["FLAGPERF_PATH"] == "renamed FLAGPERF_PATH_HOST"
    assert outcomes(done, "glm-pytorch/config/environment_variables.sh")["LD_LIBRARY_PATH"].startswith("by hand line 2")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("run_benchmarks/config/test_conf.py", '"nvidia"', '"kunlunxin"',
         "config/test_conf.py: VENDOR = 'kunlunxin': there is no such vendor here yet; vendors/ has"),
        ("run_benchmarks/config/test_conf.py", '"32G"', '"lots"',
         "training/run_benchmarks/config/test_conf.py: SHM_SIZE = 'lots': a size such as '32G'"),
        ("run_benchmarks/config/test_conf.py", "--gpus all", "--gpu all",
         "config/test_conf.py: ACCE_CONTAINER_OPT = '--gpu all': unknown container option '--gpu'"),
        ("run_benchmarks/config/test_conf.py", "glm:pytorch_1.8:A100:1:8:2", "glm:pytorch_1.8:A100:1:8",
         "CASES = 'glm:pytorch_1.8:A100:1:8': a key of 6 parts"),
        ("run_benchmarks/config/test_conf.py", "glm:pytorch_1.8:A100", "glm:pytorch_1.8:H20",
         "GLM_PYTORCH_1_8_H20_1_8_2 = 'config_H20x1x8': no file "),
        ("run_benchmarks/config/cluster_conf.py", 'HOSTS = ["10.20.0.11", "10.20.0.12"]', "",
         "training/run_benchmarks/config/cluster_conf.py: HOSTS: required: "),
        ("run_benchmarks/config/cluster_conf.py", "SSH_PORT", "SSH_PORT = ",
         "training/run_benchmarks/config/cluster_conf.py: cannot be read as a Python file: "),
        ("nvidia/glm-pytorch/config/config_A100x1x8.py", "warmup = 0.1", "warmup = 7",
         "glm-pytorch/config/config_A100x1x8.py: warmup = 7.0: expected a number of at least 0 and below 1"),
        ("nvidia/glm-pytorch/config/config_A100x1x8.py", "lr = 1e-5", "import no_such\nlr = no_such.rate()",
         "config_A100x1x8.py: lr: line 7 computes it, and the file does not run here (ModuleNotFound"),
        ("nvidia/cpm-pytorch/config/requirements.txt", "jieba", "-r more.txt",
         "training/nvidia/cpm-pytorch/config/requirements.txt: line 3: '-r more.txt' is a pip option"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_tree_is_named_and_nothing_is_written(
    file: str, old: str, new: str, said: str, tree: Path, tmp_path: Path
) -> None:
    change(tree, file, old, new)
    found = mistakes(tree)
    assert any(said in problem for problem in found), found
    output = tmp_path / "output"
    with pytest.raises(ConfigError):
        CliRunner().invoke(cli.app, ["import-flagperf", str(tree), "--output", str(output)], catch_exceptions=False)
    assert not output.exists()


def test_a_config_that_cannot_be_read_is_one_mistake(tree: Path) -> None:
    change(tree, "nvidia/glm-pytorch/config/config_A100x1x8.py", "warmup = 0.1", "warmup = (")
    (tree / "training/benchmarks/glm/pytorch/config/_base.py").unlink()
    (found,) = mistakes(tree)
    assert "glm-pytorch/config/config_A100x1x8.py: cannot be read as a Python file: " in found


def test_a_port_that_is_no_number_is_told_in_words(tree: Path) -> None:
    change(tree, "run_benchmarks/config/cluster_conf.py", 'SSH_PORT = "', 'SSH_PORT = "x')
    (found,) = mistakes(tree)
    assert found.endswith(": expected a number here") and "SSH_PORT = 'x" in found


def test_a_value_that_is_computed_is_found_by_running_the_file(tree: Path) -> None:
    change(tree, "nvidia/glm-pytorch/config/config_A100x1x8.py", "lr = 1e-5", "import math\nlr = math.sqrt(1e-10)")
    done = translate(tree)
    assert done.problems == []
    glm = settings(done.files[CONFIGS / "glm-pytorch/config/config_A100x1x8_flagperf.py"])
    assert glm["learning_rate"] == pytest.approx(1e-5)


def test_a_file_is_not_run_for_what_means_nothing_here(tree: Path) -> None:
    file = tree / "training" / "nvidia" / "glm-pytorch" / "config" / "config_A100x1x8.py"
    file.write_text(file.read_text() + f"\ntraining_event = open({str(tree / 'ran')!r}, 'w')\n")
    assert translate(tree).problems == [] and not (tree / "ran").exists()


@pytest.mark.parametrize("listed", ['["CASE_ONE"]', '["glm:pytorch_1.8:A100:1:8:1"]'])
def test_cases_as_a_list(listed: str, tree: Path) -> None:
    """The seed's names with dicts of their own, and keys without data paths."""
    test_conf = tree / "training" / "run_benchmarks" / "config" / "test_conf.py"
    head = test_conf.read_text().partition("CASES")[0]
    case = {"model": "glm", "framework": "pytorch", "config": "config_A100x1x8", "repeat": 1, "nnodes": 1, "nproc": 8}
    test_conf.write_text(f"{head}CASES = {listed}\nCASE_ONE = {case!r}\n")
    done = translate(tree)
    assert done.problems == [] and list(done.files)[1].name == "config_A100x1x8_flagperf.py"
    notes = [line.note for line in done.lines if line.key.endswith("data path")]
    assert notes == ["none is given; write data_dir_host and _container"]


def test_a_folder_that_is_no_flagperf(tmp_path: Path) -> None:
    assert [problem.allowed for problem in translate(tmp_path).problems] == [
        "no such file: expected a FlagPerf repository"
    ] * 2
    assert isinstance(translate(tmp_path).problems[0], Problem)


def test_the_page_has_every_key_as_it_is_translated() -> None:
    """docs/from-flagperf.md, whose table is `keys.markdown_table`."""
    text = (ROOT / "docs" / "from-flagperf.md").read_text(encoding="utf-8")
    begin, end = "<!-- keys:begin -->\n", "<!-- keys:end -->"
    assert text[text.index(begin) + len(begin) : text.index(end)] == keys.markdown_table()
