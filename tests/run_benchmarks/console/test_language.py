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


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_that_the_code_asks_for_has_chinese() -> None:
    assert [text for text in asked_for() if text not in catalogue()] == []


def test_both_languages_have_the_same_values_and_the_chinese_is_chinese() -> None:
    for english, chinese in catalogue().items():
        assert fields(english) == fields(chinese), english
        assert HAN.search(chinese), english


@pytest.mark.parametrize(("language", "expected"), [("en", "Hosts"), ("zh", "主机")])
def test_a_text_is_in_the_language_that_was_asked_for(language: str, expected: str) -> None:
    words = Words("zh" if language == "zh" else "en")
    assert words("Hosts") == expected
    assert words("a text that nobody translated {n}", n="{host}") == "a text that nobody translated {host}"
