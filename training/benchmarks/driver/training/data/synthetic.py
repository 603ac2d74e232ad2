"""Generates token sequences with a structure that a small model learns in a minute: each token has one successor."""

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


class Chain:
    """A random cycle through `count` tokens, numbered from `first` on: the successor of a token is always the same.

    It is a single cycle, so that no sequence is shorter than others and none can be guessed by its frequency.
    """

    def __init__(self, seed: int, *, first: int, count: int) -> None:
        generator = np.random.default_rng([seed, 0])
        cycle = generator.permutation(count)
        self._cycle = cycle
        self._successor = np.empty(count, dtype=np.int64)
        self._successor[cycle] = np.roll(cycle, -1)
        self._first = first
        self.count = count

    def successor(self, tokens: Tokens) -> Tokens:
        """The token that follows each of `tokens`; any shape."""
        return self._successor[tokens - self._first] + self._first

    def random(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Tokens:
        """Tokens of the chain with uniform probability, in the given shape."""
        return generator.integers(self._first, self._first + self.count, size=shape)

    def sequences(self, generator: np.random.Generator, start: Tokens, length: int, *, noise: float = 0.0) -> Tokens:
        """For each token of `start`, shape (n,), the `length` tokens from it on, shape (n, length).

        With probability `noise` a token is random, and the sequence continues from there.
        """
        if not noise:
            places = np.argsort(self._cycle)[start - self._first]
            whole: Tokens = self._cycle[(places[:, None] + np.arange(length)) % self.count] + self._first
            return whole
        result = np.empty((len(start), length), dtype=np.int64)
        result[:, 0] = start
        for position in range(1, length):
            following = self.successor(result[:, position - 1])
            replaced = generator.random(len(start)) < noise
            following[replaced] = self.random(generator, (int(replaced.sum()),))
            result[:, position] = following
        return result


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the training and of the evaluation set, independent of each other and of the chain's."""
    return np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
