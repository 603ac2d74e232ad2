"""A command starts at once: what takes long to import is imported by the work that needs it, not by its options."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

MOST = 40
"""Modules of this project: each takes 2 to 4 ms to import."""
OURS = {"common", "container", "protocol", "simulation", "training", "vendors", "workloads", "run_benchmarks"}
SLOW = {"numpy", "pandas", "polars", "pydantic", "scipy", "sqlite3", "statistics", "torch", "yaml", "vendors", "google"}
SCRIPT = """
import os, sys
from {program}.cli import PROGRAM

for name in PROGRAM.verbs:
    if not os.fork():
        PROGRAM.parser(name, ["--help"]).format_help()
        os.write(1, (repr((name, sorted(sys.modules))) + chr(10)).encode())
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("program", ["workloads", "simulation"])
def test_the_help_of_each_verb_imports_its_options_alone(program: str) -> None:
    """The list of modules stands for the time, which no test asserts."""
    script = SCRIPT.format(program=program)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded: dict[str, list[str]] = dict(map(ast.literal_eval, done.stdout.splitlines()))
    assert loaded
    for verb, modules in loaded.items():
        ours = [each for each in modules if each.partition(".")[0] in OURS]
        assert not SLOW & {each.partition(".")[0] for each in modules}, verb
        assert len(ours) <= MOST, (verb, ours)
