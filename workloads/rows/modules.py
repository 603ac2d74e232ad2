"""Finds the number of the layer in a module's path, so that the rows of one layer are those of the next, shifted."""

import re
from functools import lru_cache

LAYER_LISTS = frozenset({"layers", "layer", "h", "blocks", "block"})
"""Names of the lists of layers in Megatron, in Hugging Face's models and in torchtitan."""
NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@lru_cache(maxsize=1 << 16)
def split_module(module: str) -> tuple[str, int, str] | None:
    """(before, number, after) of the layer: the first number behind a name of `LAYER_LISTS`, else the first number;
    None in a path without one. A number with leading zeros is none.
    """
    parts = module.split(".")
    numbers = [at for at, part in enumerate(parts) if NUMBER.fullmatch(part)]
    if not numbers:
        return None
    at = next((at for at in numbers if at and parts[at - 1] in LAYER_LISTS), numbers[0])
    return ".".join([*parts[:at], ""]), int(parts[at]), ".".join(["", *parts[at + 1 :]])


def shifted_module(module: str, layers: int) -> str:
    """The path with the layer's number raised by `layers`, unchanged without a number.

    Raises:
        ValueError: the number would be negative.
    """
    found = split_module(module)
    if found is None or not layers:
        return module
    before, number, after = found
    if number + layers < 0:
        raise ValueError(f"module {module!r} cannot be shifted by {layers} layers")
    return f"{before}{number + layers}{after}"
