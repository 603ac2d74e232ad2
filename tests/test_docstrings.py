"""Holds docstrings to the form that CONTRIBUTING.md asks for: first lines of modules, exceptions, units and sources."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("run_benchmarks", "training", "monitors", "vendors", "container")
MAX_LENGTH = 120
QUESTION_WORDS = ("What", "How", "Which", "Where", "Whether", "Who", "Whose", "Why", "When")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

RAISES = "Raises:"
ENTRY = re.compile(r"    [A-Za-z_][\w.]*(, [A-Za-z_][\w.]*)*: \S")
INLINE = re.compile(r"\b[Rr]aises? [A-Z]|\bRaises\b(?!:$)")


def modules() -> dict[Path, ast.Module]:
    """Every importable module; a case config stands in a folder whose name has a hyphen and is data."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    relative = (file.relative_to(ROOT) for file in files)
    return {file: ast.parse((ROOT / file).read_text()) for file in relative if all(map(str.isidentifier, _parts(file)))}


def _parts(file: Path) -> tuple[str, ...]:
    return file.with_suffix("").parts


MODULES = modules()


def docstrings() -> Iterator[tuple[str, str]]:
    """Place (file:line) and text of every docstring."""
    for file, module in MODULES.items():
        for node in ast.walk(module):
            text = ast.get_docstring(node) if isinstance(node, Documented) else None
            if text is not None:
                yield f"{file}:{getattr(node, 'lineno', 1)}", text


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


def test_first_line_of_a_module_says_what_it_does() -> None:
    assert len(MODULES) > 250
    found = {str(file): first_line_mistakes(ast.get_docstring(module)) for file, module in MODULES.items()}
    assert {file: mistakes for file, mistakes in found.items() if mistakes} == {}


def test_exceptions_have_one_form() -> None:
    found = {place: raises_mistakes(text) for place, text in docstrings()}
    assert {place: mistakes for place, mistakes in found.items() if mistakes} == {}


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
