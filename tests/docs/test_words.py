"""Pages and docstrings are free of the wordings that tests/docs/dialect.toml lists."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT, pages, text_of
from tests.product import PACKAGES

INSTEAD = tomllib.loads((ROOT / "tests" / "docs" / "dialect.toml").read_text(encoding="utf-8"))


def dialect(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, wording and what to write instead, of each wording in a text."""
    for pattern, instead in INSTEAD.items():
        for match in re.finditer(pattern.replace(" ", r"\s+"), text):
            yield text.count("\n", 0, match.start()) + 1, match[0], instead


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Each docstring of a module, with the line where it begins."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text


def test_pages_are_in_plain_english() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{line}: '{wording}': write {instead}"
        for page in pages()
        for line, wording, instead in dialect(text_of(page))
    ]
    assert not found, "\n".join(found)


def test_docstrings_are_in_plain_english() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{begin + line - 1}: '{wording}': write {instead}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        for begin, text in docstrings(file)
        for line, wording, instead in dialect(text)
    ]
    assert not found, "\n".join(found)


def test_a_wording_is_found_over_a_line_end_too() -> None:
    found = dialect("Write to the console,\nbe it gone. One object a\nhost. All those aside.")
    assert sorted((line, wording) for line, wording, _ in found) == [
        (2, "One object a\nhost"),
        (2, "be it gone"),
        (3, "those aside"),
    ]
