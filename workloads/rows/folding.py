"""Finds the repetitions in a flat sequence of rows (layers, micro-batches, iterations) and folds them into blocks.

A row is its kind and up to two numbers, layer and micro-batch; a repetition may raise each number by a constant. So a
row becomes a token of its kind and what its numbers are more than the last ones before, and a repetition is a square
in the tokens: a window that follows itself. Squares are looked for where a window of k tokens comes next (k = 1, then
2, 4 ... where nothing was found), tested by rolling hash (Karp and Rabin 1987) and confirmed by comparison; what was
folded is one token of the next sweep. Each sweep is linear, and their number is bounded by `MOST_WORK`.
"""

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import Generic

from common.garbage import without_collection
from workloads.rows.blocks import Block, Row

Number = int | None
MOST_WORK = 16
"""Tokens looked at, over those given: sequences built to resist end there, folded as far as they are."""
CANDIDATES = 3
"""Next occurrences of a window that are tried as the period."""
SAMPLE = 20_000
"""Tokens at the beginning in which the shortest period is looked for: inner repetitions are folded first."""
MODULUS = (1 << 61) - 1


@dataclass(slots=True)
class _Level(Generic[Row]):
    """A sequence of rows and blocks. kinds: equal for what is equal but for its numbers; a block has its first ones."""

    items: "list[Row | Block[Row]]"
    kinds: list[int]
    layers: list[Number]
    batches: list[Number]

    def __len__(self) -> int:
        return len(self.kinds)


@without_collection()
def fold(
    rows: Sequence[Row], kinds: Iterable[Hashable], layers: Sequence[Number], micro_batches: Sequence[Number]
) -> Block[Row]:
    """The rows as blocks; iterating it yields rows equal to those given, if `shifted` adds to the two numbers alone.

    kinds: for each row, all of it but the numbers. layers, micro_batches: the numbers, None in a row without one.
    """
    names: defaultdict[Hashable, int] = defaultdict(count().__next__)
    level = _Level[Row](list(rows), list(map(names.__getitem__, kinds)), list(layers), list(micro_batches))
    left = MOST_WORK * len(level)
    width = 1
    while 2 * width <= len(level) and left > 0:
        left -= len(level)
        sweep = _Sweep(level, width, names)
        folded = sweep.run(2 * sweep.shortest()) if sweep.repeats else None
        if folded is None and sweep.missed:
            left -= len(level)
            folded = sweep.run(2 * sweep.missed)
        if folded is not None:
            level, width = folded, 1
        elif sweep.repeats:
            width *= 2
        else:
            break
    if len(level) == 1 and isinstance(level.items[0], Block):
        return level.items[0]
    return Block(level.items)


class _Sweep(Generic[Row]):
    """One pass over a level from left to right, with periods where a window of `width` tokens comes again."""

    def __init__(self, level: _Level[Row], width: int, names: "defaultdict[Hashable, int]") -> None:
        self.level = level
        self.names = names
        self.tokens = _tokens(level)
        base = random.randrange(1 << 32, MODULUS)
        self.power = _Powers(base)
        self.sums = list(accumulate(self.tokens, lambda total, token: (total * base + token + 1) % MODULUS, initial=0))
        self.width = width
        self.next = self._next_windows()
        self.repeats = any(self.next)
        self.missed = 0
        """The shortest period that was found but too long, 0 if there is none."""

    def _next_windows(self) -> list[int]:
        """For each place the next one where the same window begins, 0 without one."""
        if self.width == 1:
            windows: Sequence[int] = self.tokens
        else:
            power, width, sums = self.power(self.width), self.width, self.sums
            windows = [(end - begin * power) % MODULUS for begin, end in zip(sums, sums[width:], strict=False)]
        places = [0] * len(self.tokens)
        last: dict[int, int] = {}
        for place in range(len(windows) - 1, -1, -1):
            window = windows[place]
            places[place] = last.get(window, 0)
            last[window] = place
        return places

    def run(self, longest: int) -> _Level[Row] | None:
        """The level with its repetitions of periods up to `longest` folded, None if there are none."""
        following, size = self.next, len(self.level)
        made = _Level[Row]([], [], [], [])
        done = place = 0
        while place < size:
            period = self._period(place, longest) if following[place] else 0
            if not period:
                place += 1
                continue
            start, repeat, advance = self._extent(place, period, done)
            self._copy(made, done, start)
            self._append(made, start, period, repeat, advance)
            done = place = start + repeat * period
        if not done:
            return None
        self._copy(made, done, size)
        return made

    def shortest(self) -> int:
        """The shortest period of a square that begins in the sample, 1 without one."""
        for place in range(min(SAMPLE, len(self.tokens))):
            self._period(place, 0)
        return self.missed or 1

    def _period(self, place: int, longest: int) -> int:
        """The period of a square that begins here, 0 without one up to `longest`."""
        tokens, sums, size = self.tokens, self.sums, len(self.tokens)
        other = self.next[place]
        for _ in range(CANDIDATES):
            period = other - place
            if not other or other + period > size or 0 < self.missed <= period > longest:
                return 0
            if tokens[other - 1] == tokens[other + period - 1]:
                middle, power = sums[other], self.power(period)
                if (middle - sums[place] * power - sums[other + period] + middle * power) % MODULUS == 0:
                    if period > longest:
                        self.missed = min(self.missed or period, period)
                        return 0
                    return period if tokens[place:other] == tokens[other : other + period] else 0
            other = self.next[other]
        return 0

    def _extent(self, place: int, period: int, floor: int) -> tuple[int, int, tuple[int, int]]:
        """Where the repetition begins, not before `floor`, how often it is, and what each time adds."""
        tokens, kinds, size = self.tokens, self.level.kinds, len(self.tokens)
        window = tokens[place : place + period]
        end = place + 2 * period
        while tokens[end : end + period] == window:
            end += period
        while end < size and tokens[end] == tokens[end - period]:
            end += 1
        columns = (self.level.layers, self.level.batches)
        advance = [_first_step(column, place, period) for column in columns]
        start = place
        while start > floor and kinds[start - 1] == kinds[start - 1 + period]:
            steps = [_step(column, start - 1, period) for column in columns]
            if any(step is not None and known not in (None, step) for step, known in zip(steps, advance, strict=True)):
                break
            advance = [known if step is None else step for step, known in zip(steps, advance, strict=True)]
            start -= 1
        return start, (end - start) // period, (advance[0] or 0, advance[1] or 0)

    def _copy(self, made: _Level[Row], start: int, end: int) -> None:
        level = self.level
        made.items += level.items[start:end]
        made.kinds += level.kinds[start:end]
        made.layers += level.layers[start:end]
        made.batches += level.batches[start:end]

    def _append(self, made: _Level[Row], start: int, period: int, repeat: int, advance: tuple[int, int]) -> None:
        level, end = self.level, start + period
        layers, batches = level.layers[start:end], level.batches[start:end]
        layer, batch = _first(layers), _first(batches)
        shape = tuple(
            (kind, None if one is None else one - (layer or 0), None if two is None else two - (batch or 0))
            for kind, one, two in zip(level.kinds[start:end], layers, batches, strict=True)
        )
        made.items.append(Block(level.items[start:end], repeat, advance))
        made.kinds.append(self.names[("block", repeat, advance, shape)])
        made.layers.append(layer)
        made.batches.append(batch)


class _Powers:
    """Powers of the hash's base, each computed once."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.known: dict[int, int] = {}

    def __call__(self, exponent: int) -> int:
        found = self.known.get(exponent)
        if found is None:
            found = self.known[exponent] = pow(self.base, exponent, MODULUS)
        return found


def _tokens(level: _Level[Row]) -> list[int]:
    """A number for each different (kind, steps of layer and micro-batch since the last row that has them)."""
    names: defaultdict[tuple[int, Number, Number], int] = defaultdict(count().__next__)
    return list(map(names.__getitem__, zip(level.kinds, _steps(level.layers), _steps(level.batches), strict=True)))


def _steps(numbers: Sequence[Number]) -> list[Number]:
    steps: list[Number] = []
    last: Number = None
    for number in numbers:
        if number is None:
            steps.append(None)
        else:
            steps.append(None if last is None else number - last)
            last = number
    return steps


def _step(numbers: Sequence[Number], place: int, period: int) -> Number:
    before, after = numbers[place], numbers[place + period]
    return None if before is None or after is None else after - before


def _first_step(numbers: Sequence[Number], place: int, period: int) -> Number:
    return next((step for at in range(place, place + period) if (step := _step(numbers, at, period)) is not None), None)


def _first(numbers: Iterable[Number]) -> Number:
    return next((number for number in numbers if number is not None), None)
