"""Shortens what a message names: the first few of many words, the beginning of a long text."""

from collections.abc import Sequence


def few(words: Sequence[str], most: int, between: str = ", ") -> str:
    """The first `most` words and the number of the others: `a, b and 3 more`, between semicolons `a; b; and 3 more`."""
    more = f"{between if between != ', ' else ' '}and {len(words) - most} more" if len(words) > most else ""
    return between.join(words[:most]) + more


def shortened(text: str, most: int) -> str:
    """The text if it has up to `most` characters, else as many of its first ones, and `...`."""
    return text if len(text) <= most else f"{text[:most]}..."
