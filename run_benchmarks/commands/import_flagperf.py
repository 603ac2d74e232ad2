"""Runs `run.py import-flagperf DIR`: translates a FlagPerf tree, with a line for every key."""

from __future__ import annotations

import argparse
from pathlib import Path

from common.errors import MistakeList
from common.summary import Answer
from common.whole_files import refuse_stdout, write_all
from run_benchmarks.console.command_line import ROOT, own_command
from run_benchmarks.console.console import say
from run_benchmarks.flagperf.translation import CLUSTER_FILE, TEST_FILE, Translation, translate


def run(arguments: argparse.Namespace) -> Answer:
    """Translate the tree, print a line for each of its keys and write the translated files.

    Raises:
        InputProblems: the tree has mistakes, or other files are in the way.
    """
    tree, output = arguments.tree, arguments.output
    mistakes = MistakeList()
    if not output.is_dir():
        refuse_stdout(output, "a folder takes the files", mistakes)
    with mistakes.noted():
        done = translate(tree)
        if not mistakes.mistakes:
            _show(done, tree)
        mistakes.mistakes += done.problems
    mistakes.check()
    write_all([(output / path, text) for path, text in done.files.items()])
    written = [str(output / path) for path in done.files]
    for path in written:
        say(f"written: {path}")
    if output.resolve() == ROOT:
        files = ("--cluster-conf", str(ROOT / CLUSTER_FILE), "--test-conf", str(ROOT / TEST_FILE))
        say(f"See what a run would do:\n  {own_command(*files, 'plan')}")
    else:
        say(f"Copy run_benchmarks/ and vendors/ of {output} into {ROOT} to run it")
    return Answer(lambda: {"keys": done.lines, "written": written})


def _show(done: Translation, tree: Path) -> None:
    """Each file of the tree with a line for each of its keys."""
    for file in dict.fromkeys(line.file for line in done.lines):
        own = [line for line in done.lines if line.file == file]
        width = max(len(line.key) for line in own)
        say(str(file.relative_to(tree)) if file.is_relative_to(tree) else str(file))
        for line in own:
            say(f"  {line.key:<{width}}  {line.outcome:<11}  {line.note}".rstrip())
