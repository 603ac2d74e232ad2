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

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "run_benchmarks",
    "common",
    "protocol",
    "workloads",
    "training",
    "monitors",
    "vendors",
    "container",
    "simulation",
)
# Modules that import others of ours in a function, and why: none of these imports is there to hide a cycle.
LAZY = {
    "run_benchmarks.run": "an old Python, or one without our packages, is told so in words",
    "simulation.analytical.aicb_rows": "the package of AICB workloads takes longer to load than most runs",
    "simulation.analytical.chakra_rows": "the same package, for Chakra traces alone",
    "simulation.network.command": "numpy takes longer to load than the other verbs take",
    "simulation.network.packets": "mistakes in the input are told without numba, which may be missing",
    "simulation.topology.command": "a template starts without what reads descriptions",
    "training.benchmarks.aicb.cli": "each command loads what it needs; --help and a wrong option answer at once",
    "workloads.dialects": "a dialect that is not asked for is not loaded",
    "workloads.dialects.framework": "the list of dialects loads none of their rules",
    "workloads.dialects.aicb": "a frame that is not asked for is not loaded",
    "workloads.oplog.log": "a log CSV is read without numpy",
    "training.benchmarks.driver.launch.launcher": "torch takes seconds to load; lock and signal handlers come first",
    "training.benchmarks.network.__main__": "comparing baselines needs no torch",
    "vendors.nvidia.adapter": "the head node, which has no pynvml, loads the adapter without its probe",
}


def modules(root: Path) -> dict[str, Path]:
    """The modules of the packages below `root` by their dotted names; a package is its `__init__`."""
    found = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[tuple[str, ast.stmt]]:
    """Each module of `known` that is imported anywhere in `tree`, with its statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import; the product has absolute ones"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in known else str(node.module)
                if name in known:
                    yield name, node


def cycle(root: Path) -> list[str]:
    """The modules of one import cycle in their order, [] where there is none."""
    known = modules(root)
    graph = {
        name: {other for other, _ in imported(ast.parse(path.read_bytes()), known)} for name, path in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def lazy(root: Path) -> set[str]:
    """The modules that import another of ours elsewhere than at their top."""
    known, found = modules(root), set()
    for name, path in known.items():
        tree = ast.parse(path.read_bytes())
        if any(node not in tree.body for _, node in imported(tree, known)):
            found.add(name)
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle(ROOT) == []


def test_imports_in_functions_are_those_with_a_reason() -> None:
    assert lazy(ROOT) == set(LAZY)


@pytest.mark.parametrize(
    ("text", "is_lazy"),
    [
        ("from run_benchmarks import second\n", False),
        ("import run_benchmarks.second\n", False),
        ("def late():\n    from run_benchmarks.second import NAME\n", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from run_benchmarks.second import NAME\n", True),
    ],
)
def test_a_cycle_is_noticed(tmp_path: Path, text: str, is_lazy: bool) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "run_benchmarks" / "first.py").write_text("from run_benchmarks.second import NAME\n", encoding="utf-8")
    (tmp_path / "run_benchmarks" / "second.py").write_text("from run_benchmarks.third import NAME\n", encoding="utf-8")
    (tmp_path / "run_benchmarks" / "third.py").write_text("NAME = 3\n", encoding="utf-8")
    assert cycle(tmp_path) == []
    (tmp_path / "run_benchmarks" / "third.py").write_text(text, encoding="utf-8")
    assert set(cycle(tmp_path)) == {"run_benchmarks.second", "run_benchmarks.third"}
    assert lazy(tmp_path) == ({"run_benchmarks.third"} if is_lazy else set())
