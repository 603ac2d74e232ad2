"""Help starts at once, since what takes long to import is imported by the work that needs it; and it says units."""

import ast
import re
import subprocess
import sys
from argparse import SUPPRESS
from types import ModuleType

import pytest

from common.command_line import Program
from run_benchmarks.commands import cli as controller
from simulation import cli as simulation
from tests.docs.pages import ROOT
from workloads import cli as workloads

MOST = 40
"""Modules of this project: each takes 2 to 4 ms to import."""
OURS = {"common", "container", "protocol", "simulation", "training", "vendors", "workloads", "run_benchmarks"}
SLOW = {"numpy", "pandas", "polars", "pydantic", "scipy", "sqlite3", "statistics", "torch", "yaml", "vendors", "google"}
SLOW |= {"networkx", "infragraph", "rich", "docker", "paramiko", "sqlalchemy", "jinja2"}
SCRIPT = """
import os, sys
from {place} import PROGRAM

for name in PROGRAM.verbs:
    if not os.fork():
        PROGRAM.parser(name, ["--help"]).format_help()
        os.write(1, (repr((name, sorted(sys.modules))) + chr(10)).encode())
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("cli", [controller, workloads, simulation])
def test_the_help_of_each_verb_imports_its_options_alone(cli: ModuleType) -> None:
    """The list of modules stands for the time, which no test asserts."""
    program, script = cli.PROGRAM, SCRIPT.format(place=cli.__name__)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded: dict[str, list[str]] = dict(map(ast.literal_eval, done.stdout.splitlines()))
    assert loaded.keys() == program.verbs.keys()
    for verb, modules in loaded.items():
        ours = [each for each in modules if each.partition(".")[0] in OURS]
        assert not SLOW & {each.partition(".")[0] for each in modules}, verb
        assert len(ours) <= MOST, (verb, ours)


def test_the_plan_of_a_run_on_this_machine_alone_imports_no_ssh() -> None:
    script = (
        "import sys; from run_benchmarks.commands.cli import PROGRAM; PROGRAM.main(['plan']); "
        "print('paramiko' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.endswith("False\n") and '"cases"' in done.stdout


QUANTITY = re.compile(
    r"(begin|end|bucket|sub_group)_size\b|_threshold\b|_bw\b|bandwidth|busbw|latency|nvlink|seconds|send.lat|limit"
    r"|budget|outage|target|RATE|BYTES|TIME|\bUS\b|FROM:TO"
)
UNIT = re.compile(
    r"(?<![a-zA-Z'])(bytes|elements|Gbps|GBps|GB/s|ns|us|ms|s|watts|FILE.yaml|tokens in 14 days)(?![a-zA-Z])",
    re.IGNORECASE,
)
OF_NONE = re.compile(r"share|norm|cost")
"""What a real number is of that has no unit, or any."""


@pytest.mark.parametrize("program", [controller.PROGRAM, workloads.PROGRAM, simulation.PROGRAM])
def test_the_help_of_each_size_rate_and_time_says_its_unit(program: Program) -> None:
    """Quantities are found by their names, by what stands for their values, and by their type."""
    lacking = set[str]()
    for action in (each for verb in program.verbs for each in program.parser(verb, ["--help"])._actions):
        names, said = f"{' '.join(action.option_strings)} {action.metavar}", f"{action.help} {action.metavar}"
        is_quantity = QUANTITY.search(names) or (action.type is float and not OF_NONE.search(said))
        if is_quantity and action.help != SUPPRESS and action.choices is None and not UNIT.search(said):
            lacking.add(names)
    assert lacking == set()
