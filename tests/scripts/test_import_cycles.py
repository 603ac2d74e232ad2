"""The modules of the product import one another without a cycle, imports in functions and for types included.

An import of a module also runs the `__init__` of its packages; these edges are left out: a package that offers its
modules' names is a cycle with them. An import of a name from a package counts as one of its `__init__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.product import PACKAGES, ROOT


def modules(root: Path) -> dict[str, Path]:
    """The modules of the packages below `root` by their dotted names; a package is its `__init__`."""
    found = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Each module of `known` that is imported anywhere in `tree`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import; the product has absolute ones"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in known else str(node.module)
                if name in known:
                    yield name


def cycle(root: Path) -> list[str]:
    """The modules of one import cycle in their order, [] where there is none."""
    known = modules(root)
    graph = {name: set(imported(ast.parse(path.read_bytes()), known)) for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle(ROOT) == []


IN_FUNCTION = "def late():\n    from run_benchmarks.second import NAME\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from run_benchmarks.second import NAME\n"


@pytest.mark.parametrize(
    "text", ["from run_benchmarks import second\n", "import run_benchmarks.second\n", IN_FUNCTION, FOR_TYPES]
)
def test_a_cycle_is_noticed(tmp_path: Path, text: str) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "run_benchmarks" / "first.py").write_text("from run_benchmarks.second import NAME\n", encoding="utf-8")
    (tmp_path / "run_benchmarks" / "second.py").write_text("from run_benchmarks.third import NAME\n", encoding="utf-8")
    (tmp_path / "run_benchmarks" / "third.py").write_text("NAME = 3\n", encoding="utf-8")
    assert cycle(tmp_path) == []
    (tmp_path / "run_benchmarks" / "third.py").write_text(text, encoding="utf-8")
    assert set(cycle(tmp_path)) == {"run_benchmarks.second", "run_benchmarks.third"}
