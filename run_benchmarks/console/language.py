"""Translates headings and sentences of report and terminal: English in the code, Chinese in zh.toml beside it."""

import functools
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

Language = Literal["en", "zh"]
ANYTHING, ONE_PART, ONE_WORD = ".+?", "(?:(?![;:] ).)+?", r"[^\s;:]+?"
SENTENCES = ("reason", "evidence")  # values that are sentences themselves
CATALOGUE = Path(__file__).with_name("zh.toml")


class Words:
    """Texts in one language: `words("Hosts")`, or `words("{n} of {total} hosts", n=3, total=64)`.

    A text without a translation stays English. What comes from hosts and logs is a value and never a text.
    """

    language: Language
    _translated: Mapping[str, str]
    _reasons: Sequence[tuple[re.Pattern[str], str]]

    def __init__(self, language: Language = "en") -> None:
        self.speak(language)

    def speak(self, language: Language) -> None:
        """Use this language from now on."""
        self.language = language
        self._translated, self._reasons = (catalogue(), reasons()) if language == "zh" else ({}, ())

    def __call__(self, english: str, **values: object) -> str:
        """The text with its values in place of the names in braces."""
        text = self._translated.get(english, english)
        return text.format_map(values) if values else text

    def reason(self, english: str) -> str:
        """A reason or remark that a record has in English, in this language: whole, else part by part.

        Parts stand between ; and : there. Values, such as hosts, and parts without Chinese stay as they are.
        """
        if not self._reasons or english in self._translated:
            return self._translated.get(english, english)
        for pattern, chinese in self._reasons:
            if (found := pattern.fullmatch(english)) is not None:
                return chinese.format_map({name: self.reason(value) for name, value in found.groupdict().items()})
        for separator, chinese in (("; ", "；"), (": ", "：")):
            first, found_it, rest = english.partition(separator)
            if found_it:
                return f"{self.reason(first)}{chinese}{self.reason(rest)}"
        return english


@functools.cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    import tomllib  # for Chinese alone

    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


def catalogue() -> Mapping[str, str]:
    """Chinese by English text, of headings and sentences."""
    return _tables()["texts"]


def forms() -> Mapping[str, str]:
    """Chinese by English form of a reason, whose values stand in braces."""
    return _tables()["reasons"]


@functools.cache
def reasons() -> Sequence[tuple[re.Pattern[str], str]]:
    """The patterns of reasons, each with its Chinese: the forms with most words of their own first."""
    found = []
    for english, chinese in forms().items():
        parts = list(string.Formatter().parse(english))
        # A value before other text holds no separator, at the beginning no blank: another sentence would be its value.
        values = [
            ANYTHING if english.endswith(f"{{{name}}}") else ONE_PART if text or name in SENTENCES else ONE_WORD
            for text, name, _, _ in parts
        ]
        pattern = "".join(
            re.escape(text) + (f"(?P<{name}>{value})" if name else "")
            for (text, name, _, _), value in zip(parts, values, strict=True)
        )
        found.append((sum(len(text) for text, *_ in parts), re.compile(pattern, re.DOTALL), chinese))
    return [(pattern, chinese) for _, pattern, chinese in sorted(found, key=lambda each: -each[0])]


def size_in_words(nodes: int, ranks: int, words: Words) -> str:
    """How many hosts a case takes, with how many ranks each."""
    if nodes == 1:
        return words("1 host with 1 rank") if ranks == 1 else words("1 host with {ranks} ranks", ranks=ranks)
    if ranks == 1:
        return words("{nodes} hosts with 1 rank each", nodes=nodes)
    return words("{nodes} hosts with {ranks} ranks each", nodes=nodes, ranks=ranks)


ENGLISH = Words()
words = Words()
"""Those of this process's terminal, in the language of its `--lang`."""
