"""Finds what a layer adds to a recorded iteration: the calls of two depths side by side, and those of any other.

The calls of one pass (a phase of a micro-batch) at depth a are `ahead + behind`, at depth b they are `ahead + (b - a) *
block + behind`, where a block is what one layer sends. Layers are counted from the chunk's first in a pass that
goes forwards and from its last in one that goes backwards, so that equal calls have equal numbers. A size or
a distance to the wait that differs between the depths is a straight line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from workloads.rows.calls import Call

Key = tuple[Call, str, int]
"""A call without size and overlap, its module cut at the layer's number; what follows the number; its chunk."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A call as its chunk sees it. key: all that no depth changes; layer: from the chunk's first or last, None outside
    of layers; bytes: its size; distance: calls between issue and wait, None if nothing waits.
    """

    key: Key
    layer: int | None
    bytes: int
    distance: int | None

    def after(self, layers: int) -> "Letter":
        """The call of a layer further on."""
        return self if self.layer is None else replace(self, layer=self.layer + layers)


Same = Callable[[Letter], tuple[object, ...]]
ALIKE = ("key layer bytes distance", "key layer bytes", "key layer distance", "key layer")
"""The fields that calls of a pattern have in common, the strictest first: calls that grow with the depth, as ZeRO 3's
lists of modules, stand beside windows that shift with the layers.
"""


class NoPatternError(Exception):
    """Two depths do not say what a third one sends; the text says where."""


@dataclass(frozen=True, slots=True)
class GrowingCall:
    """A call at depth `first`, and what a layer more adds to its size and its distance."""

    letter: Letter
    first: int
    bytes: int
    distance: int

    def at(self, depth: int) -> Letter:
        """The call at a depth, its layer's number as it was."""
        letter, more = self.letter, depth - self.first
        distance = None if letter.distance is None else letter.distance + self.distance * more
        return replace(letter, bytes=letter.bytes + self.bytes * more, distance=distance)


@dataclass(frozen=True, slots=True)
class LayerCall:
    """A call of each further layer, `step` apart, and `growth` more for each layer beyond `depth` of the chunk."""

    letter: Letter
    depth: int
    step: int
    growth: int

    def at(self, number: int, depth: int) -> Letter:
        """The call of block `number` at a depth."""
        letter, distance = self.letter.after(number), self.letter.distance
        if distance is None:
            return letter
        return replace(letter, distance=distance + self.step * number + self.growth * (depth - self.depth))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A run at any depth from `first` on: `ahead`, a block for each layer more, `behind`."""

    first: int
    ahead: tuple[GrowingCall, ...]
    block: tuple[LayerCall, ...]
    behind: tuple[GrowingCall, ...]

    def at(self, depth: int) -> list[Letter]:
        """The calls at a depth."""
        more = depth - self.first
        found = [line.at(depth) for line in self.ahead]
        found += [line.at(number, depth) for number in range(more) for line in self.block]
        return found + [line.at(depth).after(more) for line in self.behind]

    @property
    def lines(self) -> list[GrowingCall]:
        """The calls whose size depends on the depth."""
        return [line for line in (*self.ahead, *self.behind) if line.bytes]


RUNS = 3
"""Most runs of layers in one pass: what no layer is named in, as a set-up, may go through the layers more than once."""


def patterns(
    short: Sequence[Letter], long: Sequence[Letter], depths: tuple[int, int], runs: int = RUNS
) -> list[Pattern]:
    """The patterns of a pass that was seen at two depths, one behind the other.

    Raises:
        NoPatternError: there is none.
    """
    try:
        return [pattern(short, long, depths)]
    except NoPatternError:
        if runs == 1 or any(letter.layer is not None for letter in short):
            raise
    first, second = depths
    for at in range(1, len(short)):
        for other in range(at, len(long), second - first):
            try:
                return [
                    pattern(short[:at], long[:other], depths),
                    *patterns(short[at:], long[other:], depths, runs - 1),
                ]
            except NoPatternError:
                continue
    raise NoPatternError(f"{len(short)} calls with {first} layers and {len(long)} with {second} have no common pattern")


def pattern(short: Sequence[Letter], long: Sequence[Letter], depths: tuple[int, int]) -> Pattern:
    """The pattern of one run through the layers.

    Raises:
        NoPatternError: there is none.
    """
    first, second = depths
    more = second - first
    size, rest = divmod(len(long) - len(short), more)
    if rest or size < 0:
        raise NoPatternError(f"{len(short)} calls with {first} layers and {len(long)} with {second}")
    for fields in ALIKE:
        found = _inserted(short, long, more, size, attrgetter(*fields.split()))
        if found is not None:
            ahead = tuple(_line(short[at], long[at], first, more) for at in range(found))
            behind = tuple(_line(short[at], long[at + size * more], first, more) for at in range(found, len(short)))
            block = _block(long[found : found + size * more], size, second, (ahead[-size:], behind[:size]))
            return Pattern(first, ahead, block, behind)
    at = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    raise NoPatternError(f"call {at} of {len(short)} begins what is no repetition of equal layers")


def _inserted(short: Sequence[Letter], long: Sequence[Letter], more: int, size: int, same: Same) -> int | None:
    """The place in `short` where `long` has further equal blocks; None if it is not `short` with such inside.

    Where several places are possible, all give the same calls at every depth: then u m..m = m'..m' u of equal blocks m
    and m', which makes u itself blocks.
    """
    count = len(short)
    ahead = next((at for at in range(count) if same(short[at]) != same(long[at])), count)
    behind = next(
        (at for at in range(count) if same(short[count - 1 - at].after(more)) != same(long[len(long) - 1 - at])), count
    )
    if ahead + behind < count:
        return None
    for place in range(ahead, count - behind - 1, -1):
        block = long[place : place + size]
        if all(
            same(block[at % size].after(at // size)) == same(long[place + at])
            and block[at % size].bytes == long[place + at].bytes
            for at in range(size, size * more)
        ):
            return place
    return None


def _block(
    blocks: Sequence[Letter], size: int, depth: int, beside: tuple[Sequence[GrowingCall], Sequence[GrowingCall]]
) -> tuple[LayerCall, ...]:
    """The calls of a block, of the blocks at `depth` and of the layers beside them: these tell how distances grow."""
    found = []
    ahead, behind = beside
    for at in range(size):
        steps = [
            _distance(later) - _distance(earlier)
            for earlier, later in zip(blocks[at::size], blocks[at + size :: size], strict=False)
        ]
        if len(set(steps)) > 1:
            raise NoPatternError("distances to the waits are no straight line")
        step = steps[0] if steps else 0
        growth = 0
        if len(ahead) == size:
            growth = ahead[at].distance
        elif len(behind) == size:
            growth = behind[at].distance - step
        found.append(LayerCall(blocks[at], depth, step, growth))
    return tuple(found)


def _distance(letter: Letter) -> int:
    return letter.distance or 0


def _line(short: Letter, long: Letter, first: int, more: int) -> GrowingCall:
    size, rest = divmod(long.bytes - short.bytes, more)
    if rest:
        raise NoPatternError(f"a size grows from {short.bytes} to {long.bytes} bytes, no whole number a layer")
    step = 0
    if short.distance is not None and long.distance is not None:
        step, rest = divmod(long.distance - short.distance, more)
        if rest:
            raise NoPatternError(f"a distance grows from {short.distance} to {long.distance} calls, unevenly")
    return GrowingCall(short, first, size, step)


def passes(keys: Sequence[tuple[object, ...]]) -> list[tuple[tuple[object, ...], slice]]:
    """Neighbouring calls with equal keys: the key and where they stand."""
    found, start = [], 0
    for key, run in groupby(keys):
        count = len(list(run))
        found.append((key, slice(start, start + count)))
        start += count
    return found
