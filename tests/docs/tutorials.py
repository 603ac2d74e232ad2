"""Runs a tutorial: the commands of its ```console blocks, whose output has to be of the form that the page shows.

A shown line has to be found in the output after the line before it. `...` stands for any words, and any number for any
other: the page shows what a reader looks for, not every line.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT

BLOCK = re.compile(r"^```console\n(?P<lines>.*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = r"\d+(?:\.\d+)*"


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page and the lines that it shows after it."""

    command: str
    shown: tuple[str, ...]


def steps(page: str) -> list[Step]:
    """The commands of a tutorial in order; a backslash at the end of a line continues it."""
    found: list[Step] = []
    text = (ROOT / "docs" / "tutorials" / f"{page}.md").read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        for line in re.sub(r"\\\n\s*", "", block["lines"]).splitlines():
            if line.startswith("$ "):
                found.append(Step(line.removeprefix("$ "), ()))
            else:
                found[-1] = Step(found[-1].command, (*found[-1].shown, line))
    return found


def lacking(shown: tuple[str, ...], output: str) -> list[str]:
    """The shown lines that the output does not have, each looked for after the one before."""
    rest, missing = output, []
    for line in shown:
        match = re.search(_pattern(line), rest, re.MULTILINE)
        if match is None:
            missing.append(line)
        else:
            rest = rest[match.end() :]
    return missing


def _pattern(line: str) -> str:
    parts = [re.split(f"({NUMBER})", part) for part in re.split(r"\s*\.\.\.\s*", line)]
    words = ("".join(NUMBER if index % 2 else _words(text) for index, text in enumerate(part)) for part in parts)
    return ".*?".join(words)


def _words(text: str) -> str:
    return r"[^\S\n]+".join(map(re.escape, re.split(r"\s+", text)))


def follow(
    page: str,
    folder: Path,
    said: Callable[[str], str | None] = lambda command: command,
    exit_codes: Mapping[str, int] | None = None,
) -> None:
    """Run a tutorial's commands by bash in `folder`.

    Args:
        said: the command to run for one of the page, e.g. with other paths; None: none, the test did that.
        exit_codes: those other than 0, by a part of the command.
    """
    expected = exit_codes or {}
    for step in steps(page):
        command = said(step.command)
        if command is None:
            continue
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        code = next((code for part, code in expected.items() if part in step.command), 0)
        assert done.returncode == code, f"{command}\n{done.stdout}"
        assert lacking(step.shown, done.stdout) == [], f"{command}\n{done.stdout}"
