"""Holds the ranks of a group, the shares of an uneven exchange and a layer's number, as a CSV has them, too."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

MOST_RANKS = 1 << 24
"""Ranks or shares of one cell; a larger number in a file is a mistake."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Global ranks of a group in the group's order: an arithmetic progression, else an explicit tuple.

    Make one with `of` or `parse`: they choose the one form of each sequence, so that equal sequences are equal.
    """

    start: int
    stride: int
    count: int
    irregular: tuple[int, ...] | None = None

    @classmethod
    def of(cls, ranks: Iterable[int]) -> "Ranks":
        """From ranks in the group's order.

        Raises:
            ValueError: there are none, one is negative, or one comes twice.
        """
        listed = tuple(ranks)
        if not listed or min(listed) < 0 or len(set(listed)) != len(listed):
            raise ValueError(f"ranks {listed[:8]} are not different numbers from 0 on, at least one")
        stride = listed[1] - listed[0] if len(listed) > 1 else 1
        if stride > 0 and listed == tuple(range(listed[0], listed[0] + stride * len(listed), stride)):
            return cls(listed[0], stride, len(listed))
        return cls(listed[0], 0, len(listed), listed)

    @classmethod
    def parse(cls, text: str) -> "Ranks":
        """Read a progression written `start:stride:count`, or any ranks joined by +.

        Raises:
            ValueError: the text is neither.
        """
        try:
            if ":" not in text:
                return cls.of(map(int, text.split("+")))
            start, stride, count = map(int, text.split(":"))
        except ValueError:
            raise ValueError(f"ranks are {text[:80]!r}, not start:stride:count or numbers joined by +") from None
        if start < 0 or stride < 1 or not 1 <= count <= MOST_RANKS:
            raise ValueError(f"ranks are {text[:80]!r}: start is 0 or more, stride 1 or more, count 1 to {MOST_RANKS}")
        return cls(start, stride if count > 1 else 1, count)

    def __hash__(self) -> int:
        return hash((self.start, self.stride, self.count))

    def __str__(self) -> str:
        if self.irregular is None:
            return f"{self.start}:{self.stride}:{self.count}"
        return "+".join(map(str, self.irregular))

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(self.expand())

    def __contains__(self, rank: object) -> bool:
        return rank in self.expand()

    def expand(self) -> range | tuple[int, ...]:
        """Every rank, in the group's order."""
        if self.irregular is not None:
            return self.irregular
        return range(self.start, self.start + self.stride * self.count, self.stride)


SHARE = re.compile(r"[0-9]{1,18}")


def splits_text(splits: tuple[int, ...]) -> str:
    """Shares joined by +, equal neighbours as share*times: 4096*3+0+128."""
    runs = [(share, len(list(run))) for share, run in groupby(splits)]
    return "+".join(f"{share}*{times}" if times > 1 else str(share) for share, times in runs)


def parse_splits(text: str) -> tuple[int, ...]:
    """The shares that `splits_text` wrote.

    Raises:
        ValueError: the text is not of that form, or a share is negative.
    """
    splits: list[int] = []
    for run in text.split("+"):
        share, star, times = run.partition("*")
        if not SHARE.fullmatch(share) or (star and not SHARE.fullmatch(times)):
            raise ValueError(f"splits are {text[:80]!r}, not shares like 4096*3+0+128")
        count = int(times) if star else 1
        if len(splits) + count > MOST_RANKS:
            raise ValueError(f"splits have more than {MOST_RANKS} shares")
        splits += [int(share)] * count
    return tuple(splits)


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
