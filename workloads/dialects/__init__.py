"""Dialects: each reproduces the workloads of one program.

A dialect turns parameters into rows. The types it builds from (ops, blocks, layers, models, groups) are shared; a
difference from the real framework's behaviour is named and described in its `deviations`.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from workloads.dialects.base import Deviation, Dialect
from workloads.job.errors import ParameterError
from workloads.job.rules import RuleViolation

DEFAULT_DIALECT: Final = "framework"
"""The dialect of generate, simai and suite without --dialect."""


_CLASSES = {"aicb": "AicbDialect", "framework": "FrameworkDialect"}


def names() -> list[str]:
    """The dialects that exist."""
    return list(_CLASSES)


def get(name: str) -> Dialect:
    """The dialect called `name`.

    Raises:
        ParameterError: no such dialect; the message lists those that exist.
    """
    if name not in _CLASSES:
        raise ParameterError([f"there is no dialect {name!r}; there is {', '.join(_CLASSES)}"])
    made: Dialect = getattr(import_module(f"{__name__}.{name}"), _CLASSES[name])()
    return made


def named_in(words: Sequence[str]) -> str:
    """The dialect that a command line names, the default where it names none that there is."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--dialect", nargs="?", default=DEFAULT_DIALECT)
    known, _ = parser.parse_known_args(list(words))
    return known.dialect if known.dialect in _CLASSES else DEFAULT_DIALECT


__all__ = ["DEFAULT_DIALECT", "Deviation", "Dialect", "RuleViolation", "get", "named_in", "names"]
