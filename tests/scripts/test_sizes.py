"""No function of the product has more than 7 parameters or a complexity above 15, no module more than 700 lines.

Complexity is more than ruff's measure: comprehensions and boolean operators count, too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product import PACKAGES, ROOT

MOST_PARAMETERS = 7
MOST_COMPLEXITY = 15
MAX_LINES = 700
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters(function: Function) -> int:
    """Parameters of a function without self and cls."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [each.arg for each in (given.vararg, given.kwarg) if each]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def complexity(function: ast.AST) -> int:
    """McCabe's number as radon counts it: 1, and 1 for each branch, loop, handler, comprehension and its conditions,
    conditional expression and boolean operator. Functions inside have their own.
    """
    return 1 + sum(map(_own, ast.iter_child_nodes(function)))


def _own(node: ast.AST) -> int:
    if isinstance(node, Function):
        return 0
    total = sum(map(_own, ast.iter_child_nodes(node)))
    if isinstance(node, ast.If | ast.IfExp | ast.ExceptHandler):
        total += 1
    elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
        total += 1 + bool(node.orelse)
    elif isinstance(node, ast.Try | ast.TryStar):
        total += bool(node.orelse)
    elif isinstance(node, ast.comprehension):
        total += 1 + len(node.ifs)
    elif isinstance(node, ast.BoolOp):
        total += len(node.values) - 1
    elif isinstance(node, ast.Match):
        total += len(node.cases) - 1
    return total


def functions(root: Path) -> Iterator[tuple[str, Function]]:
    """Each function of the packages below `root` by its file and name."""
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, Function):
                yield f"{name}::{node.name}", node


@pytest.fixture(scope="module")
def sizes() -> list[tuple[str, int, int]]:
    """Each function of the product with its parameters and its complexity; it takes seconds to parse all of them."""
    return [(name, parameters(function), complexity(function)) for name, function in functions(ROOT)]


def test_no_function_has_too_many_parameters(sizes: list[tuple[str, int, int]]) -> None:
    assert [name for name, number, _ in sizes if number > MOST_PARAMETERS] == []


@pytest.mark.parametrize(("given", "expected"), [("self, a, b, *, c", 3), ("cls, *rest, **named", 2), ("a, /, b=1", 2)])
def test_parameters_are_counted(tmp_path: Path, given: str, expected: int) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "planted.py").write_text(f"def planted({given}):\n    pass\n", encoding="utf-8")
    ((name, planted),) = functions(tmp_path)
    assert (name, parameters(planted)) == ("common/planted.py::planted", expected)


def test_no_function_is_complex(sizes: list[tuple[str, int, int]]) -> None:
    assert len(sizes) > 1000
    assert [(name, number) for name, _, number in sizes if number > MOST_COMPLEXITY] == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a", 1),
        ("return a and b or c", 3),
        ("return [x for x in a if x if b]", 4),
        ("for x in a:\n        pass\n    else:\n        pass", 3),
        ("try:\n        pass\n    except A:\n        pass\n    except B:\n        pass\n    else:\n        pass", 4),
        ("return (lambda: a if b else c)", 2),
        ("while a:\n        if b:\n            pass\n        elif c:\n            pass", 4),
    ],
)
def test_complexity_is_counted_as_radon_does(body: str, expected: int) -> None:
    """The expected numbers are radon 6.0.1's."""
    assert complexity(ast.parse(f"def planted(a, b, c):\n    {body}\n").body[0]) == expected


def too_long(root: Path) -> dict[str, int]:
    """Lines of each module of the packages below `root` that has more than MAX_LINES."""
    files = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    lines = {str(path.relative_to(root)): path.read_bytes().count(b"\n") for path in files}
    return {name: count for name, count in lines.items() if count > MAX_LINES}


def test_no_module_is_too_long() -> None:
    assert too_long(ROOT) == {}


@pytest.mark.parametrize(("count", "found"), [(700, {}), (701, {"training/planted.py": 701})])
def test_a_long_module_is_noticed(tmp_path: Path, count: int, found: dict[str, int]) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "planted.py").write_text("pass\n" * count, encoding="utf-8")
    assert too_long(tmp_path) == found
