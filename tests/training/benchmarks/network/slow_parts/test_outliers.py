"""Hosts and pairs against chance: two slow paths are not all of a host's, and links that are slow are not hidden."""

import random
from itertools import combinations

from tests.tiers import samples
from training.benchmarks.network.patterns.tiers import Classes
from training.benchmarks.network.slow_parts.outliers import pair_outliers

HOSTS, BOUND = 12, 0.16
PAIRS = list(combinations(range(HOSTS), 2))
# Host 0 has two pairs in class 1, as have others; the other pairs are of class 0, and of the same tier.
OF_CLASS_1 = {(0, 1), (0, 2), (3, 4), (3, 5), (6, 7), (6, 8)}
CLASSES = Classes(of_pairs=[int(pair in OF_CLASS_1) for pair in PAIRS], tiers=[1, 1])


def figures(slow: set[tuple[int, int]], seed: int) -> list[list[float]]:
    """Three repeats; the pairs in `slow` take twice the time in each of them."""
    draw = random.Random(seed)
    return [[draw.gauss(0.7 if pair in slow else 0.0, 0.02) for pair in PAIRS] for _ in range(3)]


def test_two_slow_paths_are_links_and_not_all_pairs_of_a_host() -> None:
    """Both of its class; its nine others would show a bad host."""
    for seed in samples(5, 50):
        found = pair_outliers(figures({(0, 1), (0, 2)}, seed), PAIRS, CLASSES, BOUND).outliers
        assert [(each.host, PAIRS[each.places[0]]) for each in found] == [(-1, (0, 1)), (-1, (0, 2))], f"seed {seed}"


def test_a_host_all_of_whose_pairs_are_slow_is_named_with_their_number() -> None:
    own = {pair for pair in PAIRS if 0 in pair}
    for seed in samples(5, 50):
        found = pair_outliers(figures(own, seed), PAIRS, CLASSES, BOUND).outliers
        assert {(each.host, each.slow, each.pairs) for each in found} == {(0, 11, 11)}, f"seed {seed}"
        found = pair_outliers(figures(own - {(0, 9)}, seed), PAIRS, CLASSES, BOUND).outliers
        assert {(each.host, each.slow, each.pairs) for each in found if each.host >= 0} == {(0, 10, 11)}


def test_a_class_whose_others_are_slow_anyway_acquits_nobody() -> None:
    """Class 0 is slower than a bad host: its two pairs in the faster class are all that can show it."""
    slow = {pair for pair in PAIRS if pair not in OF_CLASS_1} | {(0, 1), (0, 2)}
    found = pair_outliers(figures(slow, 1), PAIRS, CLASSES, BOUND).outliers
    assert [(each.host, each.slow, each.pairs) for each in found] == [(0, 2, 11)]
