"""`run.py import-flagperf`: a FlagPerf tree becomes files that `run.py plan` takes, with a line for every key."""

import json
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from common.errors import Problem
from protocol.case_config import load_case_config, trace_case_config
from protocol.config_file import config_file
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.flagperf.reading import read_conf
from run_benchmarks.flagperf.translation import Translation, translate
from tests import product
from tests.run_benchmarks import calling
from training.benchmarks.catalog import benchmark
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule, applied_rate
from training.benchmarks.driver.training.settings.settings import TrainingConfig

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


PUBLISHED = [
    *((model, f"{model}:{framework}", shape) for model, framework in
      (("bert", "pytorch_1.8"), ("bert", "paddle_2.5.1"), ("glm", "pytorch_1.8"), ("cpm", "pytorch_1.13"))
      for shape in ("1x1", "1x8", "2x8")),
    ("llama", "llama2_7b:deepspeed", "1x8"),
]  # fmt: skip


def with_cases(tree: Path, definitions: str) -> Translation:
    test_conf = tree / "training" / "run_benchmarks" / "config" / "test_conf.py"
    test_conf.write_text(test_conf.read_text().partition("CASES")[0] + definitions)
    return translate(tree)


def with_every_case(tree: Path) -> Translation:
    names = [f"{case}:A100:{shape.replace('x', ':')}:1" for _, case, shape in PUBLISHED]
    return with_cases(tree, f"CASES = {dict.fromkeys(names, '/data')!r}\n")


def test_the_translated_tree_passes_plan(tmp_path: Path) -> None:
    """In a copy of the repository, as a user has it: the first time, and again over what is there."""
    root = product.copy(tmp_path / "repository")
    run_py = [sys.executable, str(root / "run_benchmarks" / "run.py")]

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*run_py, *words], capture_output=True, text=True, timeout=200, cwd=tmp_path)

    config = root / "run_benchmarks" / "config"
    (config / "flagperf_test_conf.py").write_text("# somebody's own\n")
    shipped = {path: path.read_bytes() for path in (root / "vendors").rglob("*") if path.is_file()}
    refused = call("import-flagperf", str(TREE))
    assert refused.returncode == 2 and "is there with other content; give --force to overwrite it" in refused.stderr
    assert not (config / "flagperf_cluster_conf.py").exists(), "something was written beside a mistake"
    answer = call("import-flagperf", str(TREE), "--force")
    assert answer.returncode == 0, answer
    assert {path: path.read_bytes() for path in shipped} == shipped, "a shipped file is another now"
    files = ("--cluster-conf", f"{config}/flagperf_cluster_conf.py", "--test-conf", f"{config}/flagperf_test_conf.py")
    planned = call(*files, "plan")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert [(case["model"], case["nnodes"], len(case["rounds"])) for case in plan["cases"]] == [
        ("bert", 1, 1), ("glm", 1, 2), ("cpm", 2, 1), ("llama", 1, 1), ("bert", 1, 1),
    ]  # fmt: skip
    node = plan["cases"][1]["rounds"][0]["nodes"][0]
    assert node["options"]["gpus"] == "all" and node["options"]["cap_add"] == ["IPC_LOCK"]
    assert node["workload"]["environment"]["NCCL_IB_HCA"] == "mlx5_0,mlx5_1"
    assert node["workload"]["environment"]["NCCL_DEBUG"] == "WARN", "our own variables are lost"
    assert plan["cases"][2]["requirements"] == ["jieba==0.42.1"], "the pinned packages of our workload"
    assert "NCCL_IB_HCA" not in plan["cases"][0]["rounds"][0]["nodes"][0]["workload"]["environment"]
    again = call("import-flagperf", str(TREE))
    assert again.returncode == 0, again.stderr


def test_every_key_of_the_tree_has_a_line(tree: Path) -> None:
    done = with_every_case(tree)
    assert done.problems == []
    told = {(line.file, line.key) for line in done.lines}
    for file in sorted((tree / "training").rglob("*.py")):
        parts = file.relative_to(tree / "training").parts
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
    assert (bert["eval_interval_samples"], bert["max_grad_norm"]) == (2000 * 24 * 8, 1.0)  # of its code
    assert bert["init_checkpoint"] == "model.ckpt-28252.pt" and "eval_start_samples" not in bert
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
    assert {"activation_checkpointing", "num_workers", "synthetic_lengths"} & added


# The same training: what FlagPerf's files and code make of a case, and the case as it is shipped here. What may differ:
SAME_RESULTS = {
    "backend": "ours is the vendor's, nccl too",
    "log_freq": "how often a line is logged",
    "num_workers": "how samples are loaded",
}
DIVIDED = {
    "train_batch_size": "the samples of a step are divided for the memory of 40 GB; their product is compared below",
    "gradient_accumulation_steps": "the same",
}
RECOMPUTED = {"activation_checkpointing": "the same numbers, in more time and less memory"}
FIRST_MULTIPLE = {"eval_start_samples": "the first evaluation follows the same step"}
ALLOWED: dict[str, dict[str, str]] = {
    "bert:pytorch": {
        "precision": "bf16 needs no loss scale",
        "eval_interval_samples": "ours: every 500,000 samples, 200,000 on one GPU",
        "max_steps": "FlagPerf's end is one of micro-steps; max_samples comes before it in both",
        "lr_decay_steps": "max_steps, which is FlagPerf's number there",
        "synthetic_lengths": "of samples that are made on the fly",
    },
    "bert:paddle": FIRST_MULTIPLE,
    "glm:pytorch": {
        "precision": "bf16 needs no loss scale",
        "eval_batch_size": "each sample of the evaluation counts once",
        **DIVIDED,
        **RECOMPUTED,
        **FIRST_MULTIPLE,
    },
    "cpm:pytorch": {**DIVIDED, **RECOMPUTED, **FIRST_MULTIPLE},
    "llama:pytorch": {
        "layout": "recomputation follows from the memory",
        "attention": "auto takes the same kernel where it imports",
        "peak_tflops": "of the datasheet",
        "compare_interval_steps": "ours: ranks are compared more often, with the same numbers",
        "eval_batch_size": "nothing is evaluated",
        **RECOMPUTED,
    },
}


def test_an_imported_config_is_the_shipped_training(tree: Path, tmp_path: Path) -> None:
    done = with_every_case(tree)
    assert done.problems == []
    seen: dict[str, set[str]] = {name: set() for name in ALLOWED}
    for model, case, shape in PUBLISHED:
        framework = "paddle" if "paddle" in case else "pytorch"
        name, path = f"{model}:{framework}", CONFIGS / f"{model}-{framework}" / "config" / f"config_A100x{shape}.py"
        config_class = benchmark(model, framework).config_class
        (tmp_path / "config.py").write_text(done.files[path.with_stem(f"{path.stem}_flagperf")])
        mine = load_case_config(config_class, tmp_path / "config.py", {})
        shipped = load_case_config(config_class, config_file(ROOT / path.parent, path.stem), {})
        pairs = {key: (value, getattr(shipped, key)) for key, value in mine}
        different = {key for key, (one, other) in pairs.items() if one != other}
        assert different <= SAME_RESULTS.keys() | ALLOWED[name].keys(), (name, shape, {k: pairs[k] for k in different})
        seen[name] |= different - SAME_RESULTS.keys()
        assert isinstance(mine, TrainingConfig) and isinstance(shipped, TrainingConfig)
        ranks = {"1x1": 1, "1x8": 8, "2x8": 16}[shape]
        one, other = (TrainingSchedule.of(each, dp_size=ranks, train_samples=10**9) for each in (mine, shipped))
        assert one.global_batch_size == other.global_batch_size, "samples of a step"
        if model != "llama":
            assert one.total_steps == other.total_steps, (name, shape)
        rates = [[applied_rate(each, step, one.total_steps) for step in (1, 2, 500, 1500)] for each in (mine, shipped)]
        assert rates[0] == pytest.approx(rates[1]), (name, shape)
        if "eval_interval_samples" not in different and model != "llama":
            first, second = (next(n for n in count(1) if each.evaluates_after(n)) for each in (one, other))
            assert first == second, (name, shape)
    assert seen == {name: set(why) for name, why in ALLOWED.items()}, "an allowed difference that there is not"


def test_the_seeds_first_case_is_translated(tree: Path) -> None:
    """FlagPerf's README: named cases, the first of which is BERT in Paddle."""
    case = {
        "model": "bert", "framework": "paddle", "config": "config_A100x1x8", "repeat": 1, "nnodes": 1, "nproc": 8,
        "data_dir_host": "/home/datasets_ckpt/bert/train/", "data_dir_container": "/mnt/data/bert/train/",
    }  # fmt: skip
    done = with_cases(tree, f"CASES = ['BERT_PADDLE_DEMO_A100_1X8']\nBERT_PADDLE_DEMO_A100_1X8 = {case!r}\n")
    assert done.problems == []
    bert = settings(done.files[CONFIGS / "bert-paddle/config/config_A100x1x8_flagperf.py"])
    assert (bert["optimizer"], bert["warmup"], bert["max_steps"]) == ("adamw", 0.2, 10_000)
    assert bert["init_checkpoint"] == "model.ckpt-28252.safetensors" and bert["precision"] == "fp32"
    translated = settings(done.files[Path("run_benchmarks/config/flagperf_test_conf.py")])
    assert translated["BERT_PADDLE_DEMO_A100_1X8"] == case | {"config": "config_A100x1x8_flagperf"}


def test_one_config_on_other_numbers_of_ranks_is_two(tree: Path) -> None:
    """What FlagPerf's code computes depends on their number."""
    case = {"model": "bert", "framework": "pytorch", "config": "config_A100x1x8", "nnodes": 1, "data_dir_host": "/d"}
    cases = {"EIGHT": case | {"nproc": 8}, "TWO": case | {"nproc": 2}, "AGAIN": case | {"nproc": 8}}
    named = "".join(f"{name} = {each | {'data_dir_container': '/d'}!r}\n" for name, each in cases.items())
    done = with_cases(tree, f"CASES = {list(cases)!r}\n{named}")
    assert done.problems == []
    test_conf = settings(done.files[Path("run_benchmarks/config/flagperf_test_conf.py")])
    names = [dict(test_conf[name])["config"] for name in cases]  # type: ignore[call-overload]
    assert names == ["config_A100x1x8_flagperf", "config_A100x1x8_2_ranks_flagperf", "config_A100x1x8_flagperf"]
    intervals = [
        settings(done.files[CONFIGS / "bert-pytorch/config" / f"{name}.py"])["eval_interval_samples"] for name in names
    ]
    assert intervals == [384_000, 96_000, 384_000]


@pytest.mark.parametrize(
    ("interval", "step", "found"),
    [("-1", "2000", None), ("0", "None", 150_000), ("30000", "None", 30_000), ("30000", "100", 100 * 24 * 8)],
)
def test_evaluations_of_bert_are_those_of_flagperfs_code(
    interval: str, step: str, found: int | None, tree: Path
) -> None:
    change(tree, "benchmarks/bert/pytorch/config/_base.py", "samples: int = 0\neval_step", "samples: int = 0\nold_step")
    change(tree, "nvidia/bert-pytorch/config/config_A100x1x8.py", "seed = 9031",
           f"eval_interval_samples = {interval}\neval_step = {step}")  # fmt: skip
    bert = settings(translate(tree).files[CONFIGS / "bert-pytorch/config/config_A100x1x8_flagperf.py"])
    assert bert["eval_interval_samples"] == found


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
    packages = outcomes(done, "cpm-pytorch/config/requirements.txt")
    assert packages.keys() == {"numpy>=1.15.4", "sentencepiece>=0.1.8", "jieba"}
    assert "vendors/nvidia/cpm-pytorch/requirements.txt" in packages["jieba"]
    assert outcomes(done, "nvidia/bert-paddle/config/config_A100x1x8.py")["init_checkpoint"].startswith(
        "added = 'model"
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("run_benchmarks/config/test_conf.py", '"nvidia"', '"enflame"',
         "config/test_conf.py: VENDOR = 'enflame': there is no such vendor here yet; vendors/ has"),
        ("run_benchmarks/config/test_conf.py", '"32G"', '"lots"',
         "training/run_benchmarks/config/test_conf.py: SHM_SIZE = 'lots': a size such as 4096"),
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
    ],
)  # fmt: skip
def test_a_mistake_in_the_tree_is_named_and_nothing_is_written(
    file: str, old: str, new: str, said: str, tree: Path, tmp_path: Path
) -> None:
    change(tree, file, old, new)
    found = mistakes(tree)
    assert any(said in problem for problem in found), found
    output = tmp_path / "output"
    assert calling.call("import-flagperf", str(tree), "--output", str(output)).exit_code == 2
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


def test_a_folder_without_flagperfs_files_is_refused(tmp_path: Path) -> None:
    assert [problem.allowed for problem in translate(tmp_path).problems] == [
        "no such file: expected a FlagPerf repository"
    ] * 2
    assert isinstance(translate(tmp_path).problems[0], Problem)
