"""Pauses Python's cyclic garbage collector while many objects come that make no cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """The body without Python's cyclic garbage collector, which would look at a million new tuples again and again."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
