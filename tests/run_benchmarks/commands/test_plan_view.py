"""`run.py plan` shows everything but secrets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from run_benchmarks.session.preparation import ROOT
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
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=60)
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
