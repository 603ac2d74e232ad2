"""Holds docstrings to the form that CONTRIBUTING.md asks for: first lines of modules, exceptions, units and sources."""

import ast
import functools
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from common.garbage import without_collection
from tests.product import PACKAGES, ROOT

MAX_LENGTH = 120
QUESTION_WORDS = ("What", "How", "Which", "Where", "Whether", "Who", "Whose", "Why", "When")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

RAISES = "Raises:"
ENTRY = re.compile(r"    [A-Za-z_][\w.]*(, [A-Za-z_][\w.]*)*: \S")
INLINE = re.compile(r"\b[Rr]aises? [A-Z]|\bRaises\b(?!:$)")


# Annotations whose docstring gives a shape, and those whose docstring or name gives a unit.
TENSOR = re.compile(r"\b(Tensor|NDArray|Array|Numbers|Tokens|Batch|Indices)\b")
REAL = re.compile(r"\b(float|complex)\b")
INTEGER = re.compile(r"\bint\b")
# Integers of these names are quantities; others count or number things, and their names say which.
QUANTITY = re.compile(
    r"(^|_)(time|duration|timeout|delay|interval|size|sizes|length|memory|bandwidth|rate|speed|capacity|deadline|now|until"
    r"|grace|patience|age|elapsed|bytes|flops)(_|$)"
)
WORLD_SIZE = re.compile(r"(^|_)world_size$")  # a number of ranks
UNIT_NAME = re.compile(
    r"(^|_)(s|ms|us|ns|seconds|bytes|watts|joules|mhz|[gG]bps|GBps|tflops|ratio|fraction|share|percent|factor|probability"
    r"|ticks|monotonic|elements|std)$"
)
UNIT = re.compile(
    r"\b([Ss]econds?|s|ms|us|ns|[Mm]illiseconds?|[Mm]icroseconds?|minutes|hours|[Bb]ytes?|B|[KMGT]i?B|GB/s|B/s|bits"
    r"|[Ww]atts?|[Jj]oules?|MHz|[Oo]perations|FLOPs?|TFLOPS|ratio|fraction|share|percent|[Pp]robability|p-value|0 to 1"
    r"|epoch|monotonic|ticks|elements|[Ss]amples|[Tt]okens|tasks per core|dimensionless|units?|logarithms?)\b|%"
)
SHAPE = re.compile(r"\b([Ss]hapes?|[0-3]-[dD]|flat)\b|\([\w.]+( [-+*/] \w+)*,( [\w. +*/-]+(, )?)*\)")


@functools.cache
def modules() -> dict[Path, ast.Module]:
    """Every importable module; a case config stands in a folder whose name has a hyphen and is data."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    relative = (file.relative_to(ROOT) for file in files)
    own = [file for file in relative if all(map(str.isidentifier, _parts(file)))]
    with without_collection():
        return {file: ast.parse((ROOT / file).read_text()) for file in own}


def _parts(file: Path) -> tuple[str, ...]:
    return file.with_suffix("").parts


@functools.cache
def docstrings() -> list[tuple[str, str]]:
    """Place (file:line) and text of every docstring."""
    nodes = ((file, node) for file, module in modules().items() for node in ast.walk(module))
    found = ((file, node, ast.get_docstring(node)) for file, node in nodes if isinstance(node, Documented))
    return [(f"{file}:{getattr(node, 'lineno', 1)}", text) for file, node, text in found if text is not None]


def notes() -> Iterator[tuple[str, str]]:
    """Place and text of every string that stands below a constant."""
    for file, module in modules().items():
        for before, node in pairwise(module.body):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Expr):
                yield f"{file}:{node.lineno}", str(getattr(node.value, "value", ""))


def first_line_mistakes(docstring: str | None) -> list[str]:
    """What is wrong with the docstring of a module."""
    if not docstring:
        return ["has no docstring"]
    line = docstring.splitlines()[0]
    mistakes = []
    if line.split()[0] in QUESTION_WORDS:
        mistakes.append(f"asks a question: {line}")
    if not line.endswith("."):
        mistakes.append(f"has no full stop at the end of its first line: {line}")
    if len(line) + len('"""') > MAX_LENGTH:
        mistakes.append(f"has a first line of {len(line)} characters: {line}")
    return mistakes


def raises_mistakes(docstring: str) -> list[str]:
    """Exceptions that are named otherwise than in a `Raises:` section with one `Name: condition` a line."""
    lines = docstring.splitlines()
    mistakes = [line for line in lines if INLINE.search(line)]
    if RAISES in lines:
        start = lines.index(RAISES)
        section = lines[start + 1 :]
        entries = [line for line in section if not line.startswith("     ")]
        mistakes += [line for line in entries if not ENTRY.match(line)]
        if not entries or lines[start - 1]:
            mistakes.append("a Raises: section follows an empty line, ends the docstring and has entries")
    return mistakes


def functions(node: ast.AST, prefix: str = "", of: str = "") -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """Name, definition and docstring of the class of every public function, those of private classes left out, and
    methods whose docstring is that of a base class.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from functions(child, f"{prefix}{child.name}.", ast.get_docstring(child) or "")
        elif isinstance(child, ast.FunctionDef) and not (child.name.startswith("_") or is_inherited(node, child)):
            yield prefix + child.name, child, of


@functools.cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """Every class of the modules, by name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for module in modules().values():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def is_inherited(of: ast.AST, method: ast.FunctionDef) -> bool:
    """Whether the method has no docstring, but that of a base of its class."""
    if not isinstance(of, ast.ClassDef) or ast.get_docstring(method):
        return False
    names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in of.bases]
    bases = [base for name in names for base in classes().get(name, []) if base is not of]
    named = (node for base in bases for node in base.body if getattr(node, "name", "") == method.name)
    return any(isinstance(node, ast.FunctionDef) and ast.get_docstring(node) for node in named) or any(
        is_inherited(base, method) for base in bases
    )


def annotations(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Name and annotation of every parameter and, under the function's own name, of what it returns."""
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None and each.annotation is not None:
            yield each.arg, ast.unparse(each.annotation)
    if function.returns is not None:
        yield function.name, ast.unparse(function.returns)


def unit_mistakes(function: ast.FunctionDef, of: str = "") -> list[str]:
    """The parameters and results whose unit or shape neither their names nor the docstrings give."""
    docstring = ast.get_docstring(function) or ""
    text, found = f"{docstring} {of}", []
    for name, annotation in annotations(function):
        if UNIT_NAME.search(name) or WORLD_SIZE.search(name):
            continue
        if TENSOR.search(annotation):
            found += [] if SHAPE.search(text) else [f"{name}: no shape"]
        elif REAL.search(annotation) or (INTEGER.search(annotation) and QUANTITY.search(name)):
            found += [] if UNIT.search(text) else [f"{name}: no unit"]
    return found


def test_first_line_of_a_module_says_what_it_does() -> None:
    assert len(modules()) > 250
    found = {str(file): first_line_mistakes(ast.get_docstring(module)) for file, module in modules().items()}
    assert {file: mistakes for file, mistakes in found.items() if mistakes} == {}


def test_a_docstring_says_itself_what_it_is_of() -> None:
    """Noun or verb first, also for a constant: `The calls of a rank`, not `What a rank calls` or `See Rank`."""
    assert [place for place, text in [*docstrings(), *notes()] if text.startswith(("What ", "Tells ", "See "))] == []


def test_exceptions_have_one_form() -> None:
    found = {place: raises_mistakes(text) for place, text in docstrings()}
    assert {place: mistakes for place, mistakes in found.items() if mistakes} == {}


def test_numbers_have_units_and_tensors_shapes() -> None:
    found = {
        f"{file}:{name}": unit_mistakes(function, of)
        for file, module in modules().items()
        for name, function, of in functions(module)
    }
    assert {place: mistakes for place, mistakes in found.items() if mistakes} == {}


def test_a_method_has_the_docstring_of_its_base() -> None:
    found = {name: function for name, function, _ in functions(modules()[Path("run_benchmarks/runtimes/process.py")])}
    assert "ProcessTree.attach" not in found and "ProcessTree.output" not in found
    (alone,) = ast.parse("class A(Runtime):\n def stop(self, grace: float) -> None: ...").body
    assert [name for name, *_ in functions(ast.Module([alone], []))] == ["A.stop"]


def test_the_rules_find_mistakes() -> None:
    assert first_line_mistakes(None)
    assert first_line_mistakes("What a host is.")
    assert first_line_mistakes("Reads the facts of a host")
    assert first_line_mistakes(f"Reads {'x' * MAX_LENGTH}.")
    assert not first_line_mistakes("Reads the facts of a host.")
    assert raises_mistakes("Read it. Raises OSError.")
    assert raises_mistakes("Raise OSError unless it is there.")
    assert raises_mistakes("Read it.\n\nRaises:\n    OSError")
    assert raises_mistakes("Read it.\nRaises:\n    OSError: it is not there.")
    assert not raises_mistakes("Read it.\n\nRaises:\n    OSError, os.Problem: it is not there, nor\n        elsewhere.")


@pytest.mark.parametrize(
    ("code", "mistakes"),
    [
        ('def wait(grace: float) -> None: """Wait."""', ["grace: no unit"]),
        ('def wait(grace: float) -> None: """Wait `grace` seconds."""', []),
        ('def wait(grace_s: float) -> None: """Wait."""', []),
        ('def wait(deadline: int) -> bool: """Wait."""', ["deadline: no unit"]),
        ('def listen(port: int) -> bool: """Listen."""', []),
        ('def mean(values: Sequence[float]) -> float: """The mean."""', ["values: no unit", "mean: no unit"]),
        ('def add(hidden: Tensor) -> Tensor: """Add."""', ["hidden: no shape", "add: no shape"]),
        ('def add(hidden: Tensor) -> Tensor: """Add to (batch, seq)."""', []),
    ],
)
def test_the_rule_of_units_finds_mistakes(code: str, mistakes: list[str]) -> None:
    function = ast.parse(code).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert unit_mistakes(function) == mistakes
