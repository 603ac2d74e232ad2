"""Reads the NUMA nodes of this host, and pins a thread to the processors of one of them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

NODES = Path("/sys/devices/system/node")


def numa_nodes(folder: Path = NODES) -> dict[int, frozenset[int]]:
    """The processors of each NUMA node that has any, by the node's number; one node 0 where the kernel tells none."""
    found = {}
    for path in folder.glob("node[0-9]*"):
        try:
            cpus = processors((path / "cpulist").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if cpus:
            found[int(path.name.removeprefix("node"))] = cpus
    return dict(sorted(found.items())) or {0: frozenset(os.sched_getaffinity(0))}


def processors(text: str) -> frozenset[int]:
    """The numbers in a list as the kernel writes it, such as "0-3,8".

    Raises:
        ValueError: it is no such list.
    """
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


@contextlib.contextmanager
def pinned_to(cpus: frozenset[int]) -> Iterator[bool]:
    """Let the calling thread run on these processors alone, and afterwards where it ran before.

    Memory that the thread touches first lies there. Yields whether the process may use any: a container may not.
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)
