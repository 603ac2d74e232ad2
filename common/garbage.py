"""Pauses Python's cyclic garbage collector while many objects come that make no cycles, such as a thousand modules."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_USUAL = gc.get_threshold()
_WHILE_LOADING = 50_000  # objects between two looks, of which torch's modules have about a million


def load_modules() -> None:
    """Look for garbage rarely, until `modules_are_loaded`: torch's modules have none, and take a sixth less time."""
    gc.set_threshold(_WHILE_LOADING, *_USUAL[1:])


def modules_are_loaded() -> None:
    """Look for garbage as usual, but never again in what is there: else the exit takes half a second to search it."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


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
