"""`completion` of run.py and of the other programs, judged by bash itself."""

import shutil
import subprocess
import sys

import pytest

from run_benchmarks.commands import cli
from simulation import cli as simulation
from training.benchmarks.network import baseline
from workloads import cli as workloads

# What bash offers for a command line whose last word is being typed.
ASK = """
source /dev/stdin
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\) .*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script() -> str:
    """The scripts of all programs, as a shell loads them one after the other."""
    return "\n".join(program.PROGRAM.completion() for program in (cli, workloads, simulation, baseline))


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["run.py", "imp"], ["import-flagperf"]),
        (["run_benchmarks/run.py", "--cluster"], ["--cluster-conf"]),
        (["run_benchmarks/run.py", "plan", "--set"], ["--set", "--settings"]),
        (["run.py", "--case", "A", "plan", "--sett"], ["--settings"]),
        (["run.py", "list", "be"], ["bert"]),
        (["run.py", "import-flagperf", "--o"], ["--output"]),
        (["run.py", "stop", "--n"], ["--now"]),
        (["other.py", "p"], [""]),
        (["-m", "workloads", "gen"], ["generate"]),
        (["-m", "workloads", "generate", "--world"], ["--world_size"]),
        (["-m", "workloads", "compute", "lo"], ["look-up"]),
        (["-m", "workloads", "compute", "fill", "--dev"], ["--device"]),
        (["-m", "simulation", "topology", "--gpu_p"], ["--gpu_per_server"]),
        (["-m", "simulation", "topology", "sh"], ["show"]),
        (["-m", "training.benchmarks.network", ""], ["baseline"]),
        (["-m", "training.benchmarks.network", "baseline", "s"], ["save"]),
        (["-m", "training.benchmarks.network", "baseline", "compare", "--p"], ["--percent"]),
        (["-m", "json.tool", "s"], [""]),
    ],
)
def test_what_bash_offers(words: list[str], offered: list[str], script: str) -> None:
    argv = ["bash", "-c", ASK, "bash", sys.executable, *words]
    answer = subprocess.run(argv, input=script, capture_output=True, text=True, timeout=200)
    assert (answer.stdout.splitlines(), answer.stderr) == (offered, "")


def test_every_command_and_run_is_offered(script: str) -> None:
    for name in ("run", "check", "resume", "verify", "list"):
        assert f'        "{name}") words="' in script
    of_a_run = ["resume", "collect", "status", "attach", "stop", "clean", "verify", "drain", "undrain", "report"]
    of_a_run += ["show", "export", "bundle"]
    assert script.count("/result/'run*'") == len(of_a_run)


def test_the_options_of_a_command_are_in_one_place() -> None:
    apart = [name for name, (places, _) in cli.VERBS.items() if " " in places]
    assert apart and not [name for name in apart if hasattr(cli.PROGRAM.verb(name), "add_arguments")]
