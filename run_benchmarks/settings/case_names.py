"""Normalizes names of cases in any script, and derives folder and container names from them."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

# A component of a path holds 255 bytes on the usual file systems, 143 on encrypted ones.
MOST_BYTES = 120
SLUG_CHARACTERS = 40
HASH_CHARACTERS = 8
ALLOWED = (
    "a case's name: letters and digits of any script, '_', '-', '.' and '+', beginning with a letter or digit, "
    f"of at most {MOST_BYTES} bytes"
)


def case_name(text: str) -> str:
    """The normal form of a name: NFKC, as Python normalizes identifiers in test_conf.py."""
    return unicodedata.normalize("NFKC", text)


def is_case_name(text: str) -> bool:
    """Whether a text in normal form may name a case."""
    kinds = [unicodedata.category(character)[0] for character in text]
    return (
        bool(text)
        and kinds[0] in "LN"
        and all(kind in "LNM" or character in "_-.+" for kind, character in zip(kinds, text, strict=True))
        and len(text.encode()) <= MOST_BYTES
    )


def case_folder(name: str) -> str:
    """The name of the case's folder in the result tree."""
    return name.replace(":", "_")


def container_stem(name: str) -> str:
    """The part of a container's name for a case: ASCII, short, and unique."""
    folder = case_folder(name)
    slug = re.sub(r"[^a-z0-9_.-]", "_", folder.lower())
    if slug == folder.lower() and len(slug) <= SLUG_CHARACTERS:
        return slug
    return f"{slug[:SLUG_CHARACTERS]}-{hashlib.sha256(name.encode()).hexdigest()[:HASH_CHARACTERS]}"


def same_folder(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names with the same folder on a file system that ignores case."""
    first: dict[str, str] = {}
    pairs = []
    for name in names:
        other = first.setdefault(case_folder(name).casefold(), name)
        if other != name:
            pairs.append((other, name))
    return pairs
