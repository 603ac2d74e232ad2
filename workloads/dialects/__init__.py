"""Dialects: each reproduces the workloads of one program.

A dialect turns parameters into rows. The types it builds from (ops, blocks, layers, models, groups) are shared; a
difference from the real framework's behaviour is named and described in its `deviations`.
"""

from typing import Final

from workloads.dialects.base import Deviation, Dialect, RuleViolation
from workloads.job.errors import ParameterError

DEFAULT_DIALECT: Final = "framework"
"""What generate, simai and suite follow unless they are told otherwise."""


def _aicb() -> Dialect:
    from workloads.dialects.aicb import AicbDialect

    return AicbDialect()


def _framework() -> Dialect:
    from workloads.dialects.framework import FrameworkDialect

    return FrameworkDialect()


_MAKERS = {"aicb": _aicb, "framework": _framework}


def names() -> list[str]:
    """The dialects that exist."""
    return list(_MAKERS)


def get(name: str) -> Dialect:
    """The dialect called `name`.

    Raises:
        ParameterError: no such dialect; the message lists those that exist.
    """
    if name not in _MAKERS:
        raise ParameterError([f"there is no dialect {name!r}; there is {', '.join(_MAKERS)}"])
    return _MAKERS[name]()


__all__ = ["DEFAULT_DIALECT", "Deviation", "Dialect", "RuleViolation", "get", "names"]
