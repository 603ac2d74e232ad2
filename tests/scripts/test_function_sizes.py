"""No function of the product has more than 7 parameters.

Functions that still have more are named here: the test also fails when one of them no longer has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts.test_module_sizes import PACKAGES, ROOT

MOST_PARAMETERS = 7
# Its verbs are split as they are rewritten.
APART = "simulation"
# The parameters of a command of run.py are its options.
STILL_MANY = {
    "container/image.py::image_spec",
    "run_benchmarks/commands/cli.py::default",
    "run_benchmarks/commands/cli.py::plan",
    "run_benchmarks/commands/cli.py::run",
    "run_benchmarks/commands/history.py::show_history",
    "run_benchmarks/commands/options.py::with_options",
    "training/benchmarks/network/hosts/nccl_tests.py::run",
    "training/benchmarks/network/pytorch/measuring/timing.py::measure",
    "training/benchmarks/network/slow_parts/events.py::_culprits",
    "workloads/suite.py::_megatron",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters(function: Function) -> int:
    """Parameters of a function without self and cls."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [each.arg for each in (given.vararg, given.kwarg) if each]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def functions(root: Path) -> Iterator[tuple[str, Function]]:
    """Each function of the packages below `root` by its file and name."""
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(APART):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, Function):
                    yield f"{name}::{node.name}", node


def test_no_function_has_too_many_parameters() -> None:
    assert {name for name, each in functions(ROOT) if parameters(each) > MOST_PARAMETERS} == STILL_MANY


@pytest.mark.parametrize(("given", "expected"), [("self, a, b, *, c", 3), ("cls, *rest, **named", 2), ("a, /, b=1", 2)])
def test_parameters_are_counted(tmp_path: Path, given: str, expected: int) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "planted.py").write_text(f"def planted({given}):\n    pass\n", encoding="utf-8")
    ((name, planted),) = functions(tmp_path)
    assert (name, parameters(planted)) == ("common/planted.py::planted", expected)
