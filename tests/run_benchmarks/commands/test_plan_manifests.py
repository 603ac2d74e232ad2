"""What `run.py plan` shows to a scheduler, word for word: Slurm's script with its steps, and JobSets of Kubernetes.

`UPDATE_GOLDEN=1` writes the files anew; read the difference before a commit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.commands.plan_manifests import job_sets, slurm_script
from run_benchmarks.errors import InputProblems
from run_benchmarks.session.preparation import PreparedRun, prepare
from tests.run_benchmarks.conftest import Load
from tests.run_benchmarks.plan.test_plan import DOCKER, HOME, PROCESS, TWO_HOSTS

GOLDEN = Path(__file__).parents[2] / "data" / "plans"
RUN = "run20261121191924"
SLURM = (
    'LAUNCHER = "slurm"\nHOSTS = "gpu[01-02]"\nSLURM_PARTITION = "main"\nSLURM_GRES = "gpu:8"\nSLURM_TIME = "2:00:00"\n'
)
TEST = PROCESS.replace('"process"', '"slurm"') + 'PYTHON = "/opt/venv/bin/python"\n'


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", HOME)


def check_golden(name: str, text: str, prepared: PreparedRun) -> None:
    """Compare with the file; hashes of code and settings change with every commit."""
    text = re.sub(r"[0-9a-f]{64}", "<sha256>", text.replace(prepared.plan.code_digest, "<code>"))
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def test_slurm_receives_this_script_and_these_steps(load: Load, tmp_path: Path) -> None:
    prepared = prepare(load(TEST, SLURM), RUN)
    text = slurm_script(prepared)
    check_golden("slurm_two_hosts.sh", text, prepared)
    assert text.count("srun --jobid=$SLURM_JOB_ID") == 2
    if shutil.which("shellcheck"):
        (tmp_path / "run.sh").write_text(text)
        subprocess.run(["shellcheck", "--shell=sh", tmp_path / "run.sh"], check=True, stdout=sys.stderr)


def test_the_steps_of_the_plan_are_in_the_container(load: Load) -> None:
    script = slurm_script(
        prepare(load(TEST, f'{SLURM}SLURM_APPTAINER = "/a.sif"\nSLURM_SETUP = "module load x"\n'), RUN)
    )
    line = "apptainer exec --pwd=/ --bind=/data,/home/user/.clusterdyno,/home/user/.clusterdyno/result /a.sif"
    assert script.count(line) == 2
    assert all(line.startswith("#") for line in script.partition("exec sleep infinity\n")[2].splitlines())


def test_slurm_receives_a_script_of_each_case_with_its_own_number_of_nodes(load: Load) -> None:
    two = TEST.replace('{"network:pytorch:CPU:2:2:1": "/data"}', '["ONE", "TWO"]') + "".join(
        f"{name} = {{'model': 'network', 'framework': 'pytorch', 'config': 'config_CPUx1x2', 'nnodes': {nnodes},"
        f" 'nproc': 2}}\n"
        for name, nnodes in (("ONE", 1), ("TWO", 3))
    )
    scripts = slurm_script(prepare(load(two, "LAUNCHER = 'slurm'\nHOSTS = 3\nALLOCATION = 'case'\n"), RUN))
    one, other = scripts.split("\n\n")
    assert "--nodes=1-1" in one and "--nodes=3-3" in other and "--nodelist" not in one.partition("exec")[0]
    assert (one.count("srun"), other.count("srun")) == (1, 3)


def test_kubernetes_receives_a_job_set_for_each_round(load: Load) -> None:
    prepared = prepare(load(DOCKER, TWO_HOSTS), RUN)
    manifests = job_sets(prepared)
    check_golden("job_sets.json", json.dumps(manifests, indent=2) + "\n", prepared)
    assert [len(each["spec"]["replicatedJobs"]) for each in manifests["items"]] == [2, 2, 1]
    names = [each["metadata"]["name"] for each in manifests["items"]]
    assert len(set(names)) == 3 and all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) for name in names)


def test_a_plan_that_does_not_fit_a_scheduler_is_refused(load: Load) -> None:
    with pytest.raises(InputProblems, match="LAUNCHER = 'slurm'"):
        slurm_script(prepare(load(PROCESS, TWO_HOSTS), RUN))
    with pytest.raises(InputProblems, match="a pod needs an image"):
        job_sets(prepare(load(PROCESS, TWO_HOSTS), RUN))
