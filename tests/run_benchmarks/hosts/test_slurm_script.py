"""What Slurm is given, word for word; a shell and shellcheck read it as it is meant."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from run_benchmarks.hosts.slurm.host import WRAPPER
from run_benchmarks.hosts.slurm.script import Request, batch_script, step_argv
from run_benchmarks.runtimes.slurm import BEGIN, KEEPER

REQUEST = Request(
    name="clusterdyno-run20261125160000-0a1b",
    nodes=3,
    hosts=("gpu01", "gpu02", "login1"),
    options=("--partition=main", "--time=2:00:00", "--exclusive", "--comment=a b"),
)
SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=clusterdyno-run20261125160000-0a1b
#SBATCH --nodes=3-3
#SBATCH --ntasks-per-node=1
#SBATCH '--nodelist=gpu[01-02],login1'
#SBATCH --no-requeue
#SBATCH --output=/dev/null
#SBATCH --chdir=/
#SBATCH --partition=main
#SBATCH --time=2:00:00
#SBATCH --exclusive
#SBATCH '--comment=a b'
exec sleep infinity
"""


def test_the_batch_script_asks_for_the_nodes_and_holds_them() -> None:
    assert batch_script(REQUEST) == SCRIPT


def test_the_batch_script_of_a_controller_runs_it_and_keeps_what_it_prints() -> None:
    asked = dataclasses.replace(REQUEST, command=("/py thon", "run.py"), output="/runs/run 1/console.log")
    found = batch_script(asked).splitlines()
    assert found[-1] == "exec '/py thon' run.py" and "#SBATCH '--output=/runs/run 1/console.log'" in found


def test_a_step_names_its_job_its_node_its_processors_and_its_memory() -> None:
    words = step_argv("12", "gpu01", ["true"], cpus=8)
    assert {"--jobid=12", "--nodelist=gpu01", "--cpus-per-task=8", "--mem=0", "--overlap"} < set(words)
    assert (words[0], words[-1]) == ("srun", "true")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", [SCRIPT, KEEPER, BEGIN, WRAPPER], ids=["batch", "keeper", "begin", "wrapper"])
def test_shellcheck_finds_nothing(script: str, tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text(script)
    found = subprocess.run(["shellcheck", "--shell=sh", str(file)], stdout=subprocess.PIPE, text=True, check=False)
    assert found.stdout == ""
