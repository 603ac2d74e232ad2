"""What Slurm is given, word for word; a shell and shellcheck read it as it is meant."""

import dataclasses
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from run_benchmarks.hosts.slurm.host import WRAPPER
from run_benchmarks.hosts.slurm.script import Request, batch_script, step_argv, surroundings
from run_benchmarks.runtimes.slurm import BEGIN

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


STEP = (
    "srun --jobid=12 --nodelist=gpu01 --nodes=1 --ntasks=1 --mem=0 --overlap --chdir=/ --export=ALL --mpi=none "
    "--cpu-bind=none --quiet --cpus-per-task=8"
)
PYXIS = "--container-image=./a.sqsh --container-mounts=/ours:/ours,/data:/data --container-name=clusterdyno "
SETUP = """bash -lc 'module load cuda\nexec "$@"' bash"""


@pytest.mark.parametrize(
    ("setup", "pyxis", "apptainer", "line"),
    [
        (None, None, None, "true"),
        ("module load cuda", None, None, f"{SETUP} true"),
        (None, "./a.sqsh", None, f"{PYXIS}--container-workdir=/ true"),
        (None, None, "/a.sif", "apptainer exec --nv --pwd=/ --bind=/ours,/data /a.sif true"),
        ("module load cuda", None, "/a.sif", f"{SETUP} apptainer exec --nv --pwd=/ --bind=/ours,/data /a.sif true"),
    ],
    ids=["none", "setup", "pyxis", "apptainer", "apptainer by a module"],
)
def test_the_line_of_a_step(setup: str | None, pyxis: str | None, apptainer: str | None, line: str) -> None:
    """pyxis's and apptainer's options are those of their documentation."""
    folders, options = ["/ours", "/data"], ["--nv"]
    inside = surroundings(
        folders=folders, setup=setup, pyxis_image=pyxis, apptainer_image=apptainer, apptainer_options=options
    )
    found = step_argv("12", "gpu01", [*inside.prefix, "true"], cpus=8, options=inside.options)
    assert shlex.join(found) == f"{STEP} {line}"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", [SCRIPT, BEGIN, WRAPPER], ids=["batch", "begin", "wrapper"])
def test_shellcheck_finds_nothing(script: str, tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text(script)
    found = subprocess.run(["shellcheck", "--shell=sh", str(file)], stdout=subprocess.PIPE, text=True, check=False)
    assert found.stdout == ""
