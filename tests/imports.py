"""Tells which test files import torch when they are loaded: imports are read, also those of what they import."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def loads(file: Path, module: str) -> bool:
    """Whether loading a file of this repository imports a module of that name, by way of our own files, too."""
    seen, waiting = {file}, [file]
    while waiting:
        for name in imported(waiting.pop()):
            if name.partition(".")[0] == module:
                return True
            parts = tuple(name.split("."))
            own = (_file(parts[:count]) for count in range(1, len(parts) + 1))
            new = {each for each in own if each is not None} - seen
            seen |= new
            waiting += new
    return False


@functools.cache
def imported(file: Path) -> frozenset[str]:
    """The dotted names that a file imports when it is loaded; of `from a import b` both a and a.b."""
    return frozenset(_names(ast.parse(file.read_bytes()).body))


def _names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Try | ast.With) or (isinstance(node, ast.If) and "TYPE_CHECKING" not in _test(node)):
            yield from _names(node.body)


def _test(node: ast.If) -> str:
    return ast.unparse(node.test)


@functools.cache
def _file(parts: tuple[str, ...]) -> Path | None:
    path = ROOT.joinpath(*parts)
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
