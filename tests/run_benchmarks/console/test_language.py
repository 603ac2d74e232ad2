"""The catalogue of `--lang zh`: whole, with the same values in both languages, and used where it says."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.console.language import Words, catalogue

ROOT = Path(__file__).parents[3] / "run_benchmarks"
HAN = re.compile(r"[\u4e00-\u9fff]")
NAMES = ("title", "columns", "_COLUMNS")
IN_TEMPLATES = re.compile(r"""\bwords\(\s*(?:"([^"]*)"|'([^']*)')""")


def asked_for() -> Iterator[str]:
    """The text of every `words("...")` in the code and the templates of the controller."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", getattr(node.func, "attr", "")) != "words":
                continue
            if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                yield node.args[0].value
    for file in ROOT.rglob("*.j2"):
        yield from (one or other for one, other in IN_TEMPLATES.findall(file.read_text(encoding="utf-8")))


def titles_of_benchmarks() -> Iterator[str]:
    """The constant titles and columns of the tables and charts in their sections of a report."""
    for file in (ROOT.parent / "training" / "benchmarks").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "protocol.outcome" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in NAMES:
                yield from constants(node.value)
            if isinstance(node, ast.keyword) and node.arg in NAMES:
                yield from constants(node.value)


def constants(node: ast.expr) -> Iterator[str]:
    """The texts of a constant, or of those in a tuple."""
    for each in node.elts if isinstance(node, ast.Tuple) else [node]:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value:
            yield each.value


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_that_the_code_asks_for_has_chinese() -> None:
    found = [*titles_of_benchmarks()]
    assert "Slowest device against the datasheet" in found and "busbw, GB/s" in found
    assert [text for text in (*asked_for(), *found) if text not in catalogue()] == []


def test_both_languages_have_the_same_values_and_the_chinese_is_chinese() -> None:
    for english, chinese in catalogue().items():
        assert fields(english) == fields(chinese), english
        assert HAN.search(chinese), english


@pytest.mark.parametrize(("language", "expected"), [("en", "Hosts"), ("zh", "主机")])
def test_a_text_is_in_the_language_that_was_asked_for(language: str, expected: str) -> None:
    words = Words("zh" if language == "zh" else "en")
    assert words("Hosts") == expected
    assert words("a text that nobody translated {n}", n="{host}") == "a text that nobody translated {host}"
