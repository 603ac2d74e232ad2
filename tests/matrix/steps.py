"""What has to work on a stock Debian: by a user without rights, under nohup, from another directory, offline."""

import shutil
import tempfile
from pathlib import Path

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.matrix.userland import HOME, Suite, Userland
from tests.mutants import copy_repository

ROOT = Path(__file__).resolve().parents[2]
PROJECT = f"{HOME}/clusterdyno"
WHEELS = ("/wheels/workload", "/wheels/controller")
# What the hosts' image is built with, by the folder's name that it was built with before.
HOSTS_WHEELS = "/wheels/wheelhouse"
PYTHON = f"{PROJECT}/.venv/bin/python"
BED = f"{HOME}/bed"
ELSEWHERE = "/tmp"


class StepError(Exception):
    """A step failed; the message has the end of its output."""


def wheelhouses(suite: Suite) -> dict[str, Path]:
    """The wheels that `make run` needs there and those of the hosts' image, downloaded once, by their path inside."""
    folders = {}
    for inside, name in zip(WHEELS, ("workload", "controller"), strict=True):
        usual = name == "workload" and suite.python == images.SUITE_PYTHON
        folder = images.WHEELHOUSE if usual else images.CACHE / f"wheelhouse-{name}-{suite.python}"
        requirements = ROOT / "requirements" / f"{name}.txt"
        folders[inside] = images.make_wheelhouse(folder, requirements=requirements, python=suite.python)
    return {**folders, HOSTS_WHEELS: images.make_wheelhouse()}


def set_up(userland: Userland) -> None:
    """Put the repository and the wheels there: all that a network would be needed for."""
    for inside, folder in wheelhouses(userland.suite).items():
        userland.add(folder, inside)
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copytree(copy_repository(Path(temporary)), userland.outside(PROJECT), symlinks=True)
    userland.give(userland.outside(PROJECT))


def install_and_run(userland: Userland) -> str:
    """`make run`: the virtual environment, the installation, the shipped benchmark; returns what it printed.

    Raises:
        StepError: it did not end with a verdict of pass.
    """
    links = " ".join(["--no-index", *(f"--find-links={folder}" for folder in WHEELS)])
    output = _step(userland, ["make", "-C", PROJECT, "run", f"PIP_ARGS={links}"])
    if "/usr/bin" not in userland.outside(f"{PROJECT}/.venv/pyvenv.cfg").read_text():
        raise StepError("the virtual environment is not of the system's own Python")
    if ": pass. See all logs in" not in output:
        raise StepError(f"make run ended well without a verdict of pass:\n{output[-3000:]}")
    return output


def run_on_hosts(userland: Userland, bed: TestBed) -> str:
    """run.py on the hosts of a bed (two, with engines and images), as that user; returns what it printed.

    Raises:
        StepError: it did not end with a verdict of pass.
    """
    inside = userland.outside(BED)
    inside.mkdir()
    for file in (bed.key_file, bed.known_hosts):
        shutil.copy(file, inside)
    cluster = bed.cluster_conf.read_text().replace(str(bed.folder), BED)
    (inside / "cluster_conf.py").write_text(cluster)
    test = bed.test_conf.read_text().replace(str(images.WHEELHOUSE), HOSTS_WHEELS)
    (inside / "test_conf.py").write_text(test)
    userland.give(inside)
    files = ["--cluster-conf", f"{BED}/cluster_conf.py", "--test-conf", f"{BED}/test_conf.py"]
    output = _step(userland, [PYTHON, f"{PROJECT}/run_benchmarks/run.py", *files], network=True)
    if ": pass. See all logs in" not in output:
        raise StepError(f"run.py ended well without a verdict of pass:\n{output[-3000:]}")
    return output


def _step(userland: Userland, argv: list[str], *, network: bool = False) -> str:
    result = userland.run(argv, directory=ELSEWHERE, network=network)
    if result.returncode != 0:
        raise StepError(f"{' '.join(argv)}: exit code {result.returncode}:\n{result.stdout[-3000:]}")
    return result.stdout
