"""Dialects: whose behaviour a workload follows.

A dialect turns parameters into rows. The types it builds from (ops, blocks, layers, models, groups) are shared; where
it leaves the real framework's behaviour, that is named and described in its `deviations`.
"""

from training.benchmarks.aicb.dialects.base import Deviation, Dialect, Problem

DEFAULT_DIALECT = "aicb"


def names() -> list[str]:
    """The dialects that exist."""
    return [DEFAULT_DIALECT]


def get(name: str) -> Dialect:
    """The dialect called `name`. Raises ValueError naming those that exist."""
    if name == "aicb":
        from training.benchmarks.aicb.dialects.aicb import AicbDialect

        return AicbDialect()
    raise ValueError(f"there is no dialect {name!r}; there is {', '.join(names())}")


__all__ = ["DEFAULT_DIALECT", "Deviation", "Dialect", "Problem", "get", "names"]
