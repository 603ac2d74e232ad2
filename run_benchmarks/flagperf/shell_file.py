"""Reads FlagPerf's environment_variables.sh: the plain `export NAME=value` lines of a shell script."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from run_benchmarks.flagperf.keys import BUILD_VARIABLES
from run_benchmarks.flagperf.lines import Line

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def read_variables(path: Path) -> tuple[dict[str, str], list[Line]]:
    """The variables whose values are plain, and a line for every variable of the file."""
    variables: dict[str, str] = {}
    lines: list[Line] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _ASSIGNMENT.fullmatch(text)
        if match is None:
            continue
        name, raw = match.groups()
        where = f"line {number}"
        if name in BUILD_VARIABLES:
            lines.append(Line(path, name, "meaningless", f"{where}: it is for a build of FlagPerf's own kernels"))
        elif "$" in raw or "`" in raw:
            lines.append(
                Line(path, name, "by hand", f"{where}: computed by the shell; write its value into the .env file")
            )
        else:
            try:
                variables[name] = " ".join(shlex.split(raw, comments=True))
            except ValueError as error:
                lines.append(Line(path, name, "by hand", f"{where}: {error}"))
                continue
            lines.append(Line(path, name, "kept", "in <config>_flagperf.env"))
    return variables, lines
