"""`run.py plan` shows everything but secrets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from tests.run_benchmarks.calling import call
from tests.run_benchmarks.conftest import Load

TOKEN, PASSWORD = "hf_0123456789abcdef", "swordfish99"
CONF = f"""
VENDOR = "cpu"
RUNTIME = "docker"
IMAGE = "site/pytorch:1"
ACCE_CONTAINER_OPT = "-e HF_TOKEN={TOKEN} -e PROXY=http://user:{PASSWORD}@proxy:3128 -e NCCL_DEBUG=INFO"
CASES = ["ONE"]
ONE = {{"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 2}}
"""


def test_a_plan_is_printed_without_secrets(load: Load, tmp_path: Path) -> None:
    load(CONF)
    files = ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "--test-conf", str(tmp_path / "test_conf.py")]
    argv = [sys.executable, str(ROOT / "run_benchmarks" / "run.py"), *files, "plan"]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stderr
    assert not any(secret in answer.stdout + answer.stderr for secret in (TOKEN, PASSWORD))
    node = json.loads(answer.stdout)["cases"][0]["rounds"][0]["nodes"][0]
    expected = {"HF_TOKEN": "***", "PROXY": "http://user:***@proxy:3128", "NCCL_DEBUG": "INFO"}
    for environment in (
        node["options"]["environment"],
        node["workload"]["environment"],
        node["monitor"]["environment"],
    ):
        assert {name: environment[name] for name in expected} == expected


BERT = """
VENDOR = "nvidia"
RUNTIME = "process"
STALL_LIMIT = 900
CASES = ["ONE", "HOSTED"]
ONE = {"model": "bert", "framework": "pytorch", "config": "config_H100x2x8", "nnodes": 2, "nproc": 8,
       "data_dir_host": "/data", "data_dir_container": "/data",
       "overrides": {"log_freq": 5, "backend": "gloo"}, "repeat": 5, "expect": {"mfu": ">= 0.3"}}
HOSTED = {"model": "bert", "framework": "pytorch", "config": "config_H100x1x1", "hosts": ["h2"], "nproc": 1,
          "data_dir_host": "/data", "data_dir_container": "/data"}
"""
SETS = ("--repeat", "2", "--set", "ONE.nproc=4", "--set", "ONE.overrides.seed=9")
EXPECTED = {
    "learning_rate": "training/benchmarks/bert/pytorch/base.py",
    "train_batch_size": "vendors/nvidia/bert-pytorch/config/config_H100x1x8.py",
    "log_freq": "test_conf.py: ONE.overrides.log_freq",
    "seed": "--set ONE.overrides.seed",
    "beta1": "default",
    "backend": "test_conf.py: ONE.overrides.backend",
}
EXPECTED_OF_THE_CASE = {
    "backend": "test_conf.py: ONE.overrides.backend",
    "nnodes": "test_conf.py: ONE.nnodes",
    "nproc": "--set ONE.nproc",
    "time_limit": "default",
    "stall_limit": "test_conf.py: STALL_LIMIT",
    "retries": "default",
    "predict": "default",
    "data_dir_host": "test_conf.py: ONE.data_dir_host",
    "repeat": "--repeat",
    "expect": "test_conf.py: ONE.expect",
}


def planned(load: Load, tmp_path: Path, *words: str) -> str:
    load(BERT, 'HOSTS = ["h1", "h2"]\n')
    files = ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "--test-conf", str(tmp_path / "test_conf.py")]
    answer = call(*files, "plan", *SETS, *words).checked()
    assert answer.exit_code == 0
    return answer.stdout


def test_a_plan_says_of_each_value_where_it_stands(load: Load, tmp_path: Path) -> None:
    one, hosted = json.loads(planned(load, tmp_path))["cases"]
    assert one["config"].keys() == one["config_origins"].keys()
    assert {key: one["config_origins"][key] for key in EXPECTED} == EXPECTED
    assert one["origins"] == EXPECTED_OF_THE_CASE
    assert hosted["origins"]["nnodes"] == "test_conf.py: HOSTED.hosts"
    assert hosted["origins"]["expect"] == "default"
    assert hosted["origins"]["backend"] == "vendors/nvidia/adapter.py"
    own = "vendors/nvidia/bert-pytorch/config/config_H100x1x1.py"
    assert hosted["config_origins"]["eval_interval_samples"] == own


def test_the_same_as_a_table(load: Load, tmp_path: Path) -> None:
    text = planned(load, tmp_path, "--settings", "--case", "ONE")
    rows = [[cell.strip() for cell in line.split("│")] for line in text.splitlines()]
    found = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert len(found) == len([row for row in rows if len(row) == 3]), "a setting has two rows"
    assert {key: found[key][1] for key in EXPECTED | EXPECTED_OF_THE_CASE} == EXPECTED | EXPECTED_OF_THE_CASE
    assert (found["learning_rate"][0], found["nproc"][0], found["backend"][0]) == ("0.00035", "4", "'gloo'")
    assert (found["repeat"][0], found["expect"][0]) == ("2", "{'': {'mfu': '>= 0.3'}}")


@pytest.mark.parametrize(
    ("words", "origin"),
    [
        ((), "test_conf.py: HOSTED.hosts"),
        (("--set", "HOSTED.nnodes=1"), "--set HOSTED.nnodes"),
        (("--set", 'HOSTED.hosts=["h1"]'), "--set HOSTED.hosts"),
    ],
)
def test_the_size_is_that_of_the_hosts_only_where_nnodes_is_not_written(
    load: Load, tmp_path: Path, words: tuple[str, ...], origin: str
) -> None:
    (case,) = json.loads(planned(load, tmp_path, "--case", "HOSTED", *words))["cases"]
    assert (case["nnodes"], case["origins"]["nnodes"]) == (1, origin)
