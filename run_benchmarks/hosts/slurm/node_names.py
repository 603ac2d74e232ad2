"""Reads lists of hosts as Slurm writes them ("gpu[01-16],login1"), with ClusterShell's NodeSet."""

from collections.abc import Iterable


def expanded(expression: str) -> tuple[str, ...]:
    """The names in a hostlist expression, each once, sorted as Slurm sorts them.

    Raises:
        ValueError: the text is no hostlist expression.
    """
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # a tenth of a second

    try:
        return tuple(map(str, NodeSet(expression, resolver=RESOLVER_NOGROUP)))
    except NodeSetException as error:
        raise ValueError(f"{expression!r} is no list of hosts such as 'gpu[01-16],gpu20': {error}") from error


def folded(names: Iterable[str]) -> str:
    """The hostlist expression of these names; "" without any."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def count_of(ranges: str) -> int:
    """How many numbers a text like "0-3,8" names.

    Raises:
        ValueError: it is no such text.
    """
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    try:
        return len(RangeSet(ranges))
    except RangeSetException as error:
        raise ValueError(f"{ranges!r} is no list of numbers: {error}") from error
