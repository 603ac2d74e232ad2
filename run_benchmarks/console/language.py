"""Translates headings and sentences of report and terminal: English in the code, Chinese in zh.toml beside it."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
CATALOGUE = Path(__file__).with_name("zh.toml")


class Words:
    """Texts in one language: `words("Hosts")`, or `words("{n} of {total} hosts", n=3, total=64)`.

    A text without a translation stays English. What comes from hosts and logs is a value and never a text.
    """

    def __init__(self, language: Language = "en") -> None:
        self.language: Language = language
        self._translated: Mapping[str, str] = catalogue() if language == "zh" else {}

    def __call__(self, english: str, **values: object) -> str:
        """The text with its values in place of the names in braces."""
        text = self._translated.get(english, english)
        return text.format_map(values) if values else text


@functools.cache
def catalogue() -> Mapping[str, str]:
    """Chinese by English text."""
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


ENGLISH = Words()
