"""run.py with a training's reference: the same training passes, other data fails; rounds may have their own seeds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
OVERRIDES = {
    "data": "files", "train_file": "train.npy", "eval_file": "eval.npy", "max_steps": 40, "log_freq": 2,
    "target_loss": None, "eval_interval_samples": 640, "train_batch_size": 8, "eval_batch_size": 16,
}  # fmt: skip


class Site:
    """A folder with the two files, data and results."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.data.mkdir()
        generator = np.random.default_rng(1)
        follower = generator.permutation(100)
        for name, count in (("train", 64 * 700), ("eval", 64 * 64)):
            tokens = np.empty(count, dtype=np.uint16)
            tokens[0] = 1
            for place in range(1, count):  # a token in ten is drawn: else the evaluation's samples are the training's
                tokens[place] = follower[tokens[place - 1]] if generator.random() < 0.9 else generator.integers(100)
            np.save(self.data / f"{name}.npy", tokens)
        case = {
            "model": "llama", "framework": "pytorch", "config": "config_llama3_CPUx1x2", "nnodes": 1, "nproc": 2,
            "data_dir_host": str(self.data), "data_dir_container": "/data", "overrides": OVERRIDES,
        }  # fmt: skip
        (folder / "cluster_conf.py").write_text('HOSTS = ["localhost"]\n')
        (folder / "test_conf.py").write_text(
            f'VENDOR, RUNTIME, CASES = "cpu", "process", ["L"]\nL = {case!r}\n'
            f'PYTHON = {sys.executable!r}\nFLAGPERF_LOG_PATH_HOST = "{folder}/result"\n'
            f'FLAGPERF_PATH_HOST = "{folder}/deploy"\n'
        )

    def run(self, *options: str) -> dict[str, Any]:
        """The case of run.json."""
        files = [f"--{name}-conf={self.folder / name}_conf.py" for name in ("cluster", "test")]
        before = set(self.folder.glob("result/run*"))
        argv = [sys.executable, "run_benchmarks/run.py", *files, *options]
        result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        (folder,) = set(self.folder.glob("result/run*")) - before
        case: dict[str, Any] = json.loads((folder / "run.json").read_text())["cases"][0]
        assert (result.returncode == 0) == (case["verdict"] == "pass"), result.stdout[-2000:]
        return case


def test_a_run_is_the_same_training_or_not(tmp_path: Path) -> None:
    site, good = Site(tmp_path), tmp_path / "good.json"
    assert site.run("run", "--save-baseline", str(good))["verdict"] == "pass"
    assert len(list((tmp_path / "deploy" / "data_hashes").iterdir())) == 1
    compare = ["--set", f'BASELINE="{good}"', "--set", "BASELINE_PERCENT=10000"]
    same = site.run(*compare, "run")
    assert same["verdict"] == "pass"
    assert any(
        said.startswith("same training as the reference: the loss is within ") for said in same["baseline"]["sentences"]
    )
    tokens = np.load(site.data / "train.npy")
    tokens[5000:5064] = tokens[5000:5064][::-1]
    np.save(site.data / "train.npy", tokens)
    other = site.run(*compare, "run")
    assert other["verdict"] == "fail"
    assert "the training departs from the reference before step 1: its data files are others" in other["reason"]


def test_rounds_may_have_seeds_of_their_own(tmp_path: Path) -> None:
    site, good = Site(tmp_path), tmp_path / "good.json"
    varied = ["--repeat", "3", "--set", "L.overrides.vary_seed=True"]
    assert site.run(*varied, "run", "--save-baseline", str(good))["metrics"]["seed"] == [42, 43, 44]
    curves = json.loads(good.read_text())["cases"][0]["entries"]["training curve"]["details"]["curves"]
    assert [curve["seed"] for curve in curves] == [42, 43, 44]
    assert len({tuple(curve["loss"]) for curve in curves}) == 3
    options = ["--set", f'BASELINE="{good}"', "--set", "BASELINE_PERCENT=10000", "--set", "L.overrides.seed=77"]
    found = site.run(*options, "run")
    assert found["verdict"] == "pass"
    assert any(
        said.startswith("same training as the reference: with the seed 77") for said in found["baseline"]["sentences"]
    )
