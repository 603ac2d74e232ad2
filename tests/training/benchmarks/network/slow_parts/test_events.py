"""The statistics behind a finding: p-values against sums by hand, and who is the culprit among pairs."""

import math
import random
from itertools import combinations
from statistics import pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import samples
from training.benchmarks.network.slow_parts.chance import chance, design_effect, exact_chance
from training.benchmarks.network.slow_parts.events import culprit_groups, culprit_pairs
from training.benchmarks.network.slow_parts.noise import every_nth, settle, tail

PAIRS = list(combinations(range(6), 2))
OF_HOST_2 = [place for place, pair in enumerate(PAIRS) if 2 in pair]
ALPHA = 0.001


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0.001, 0.999))
def test_the_binomial_tail(measured: int, bad: int, share: float) -> None:
    by_hand = sum(math.comb(measured, k) * share**k * (1 - share) ** (measured - k) for k in range(bad, measured + 1))
    assert chance(bad, measured, share) == pytest.approx(by_hand, rel=1e-6, abs=1e-12)


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_hypergeometric_tail(measured: int, others: int, bad: int, all_bad: int) -> None:
    every, bad = measured + others, min(bad, measured)
    all_bad = min(all_bad, every)
    by_hand = sum(
        math.comb(all_bad, k) * math.comb(every - all_bad, measured - k) for k in range(bad, min(measured, all_bad) + 1)
    ) / math.comb(every, measured)
    assert exact_chance(bad, measured, all_bad, every) == pytest.approx(by_hand, rel=1e-6, abs=1e-12)


def test_noise_without_repeats_is_unknown_and_explains_everything() -> None:
    settled = settle([[0.0, 1.0, 2.0]], ALPHA)
    assert settled.degrees == 0 and tail(5.0, 1.0, 0) == 1.0
    assert (tail(1.0, 0.0, 3), tail(0.0, 1.0, 3)) == (0.0, 1.0)


def test_drift_that_all_share_is_no_noise() -> None:
    settled = settle([[0.0, 1.0, 2.0, 3.0], [0.5, 1.5, 2.5, 3.5], [0.2, 1.2, 2.2, 3.2]], ALPHA)
    assert settled.noise == pytest.approx(0, abs=1e-12)
    assert [round(value - settled.values[0], 6) for value in settled.values] == [0, 1, 2, 3]


@pytest.mark.parametrize(("wild", "counts"), [(0, False), (1, False), (5, False), (6, True), (20, True)])
def test_extreme_repeats_are_noise_unless_they_are_rare(wild: int, counts: bool) -> None:
    """With 5 of 60, all three repeats of a group are extreme with a chance of (6 / 62)^3 < ALPHA; with 6, of more."""
    repeats = [[0.01 * ((group + repeat * (group % 3 + 1)) % 3) for group in range(20)] for repeat in range(3)]
    for group in range(wild):
        repeats[group % 3][group] += 3.0
    settled = settle(repeats, ALPHA)
    assert settled.noise > 0.5 if counts else settled.noise == pytest.approx(0.005, rel=0.1)
    if wild < 20:  # of 20 the usual distance itself is extreme, and nothing is told apart
        assert settled.calm == pytest.approx(0.005, rel=0.25)
        assert settled.is_calm(1, ALPHA) is not counts and settled.is_calm(2, ALPHA)


def test_a_sample_of_many_values_is_spread_evenly() -> None:
    assert len(every_nth(range(1_000_000))) == 5000 and list(every_nth([1, 2])) == [1, 2]


def test_the_host_of_all_bad_pairs_is_the_culprit_and_no_pair() -> None:
    for rare in (True, False):
        (found,) = culprit_pairs([OF_HOST_2] * 5, PAIRS, ALPHA, rare=rare)
        assert (found.host, found.places, found.tally.bad, found.others.bad) == (2, tuple(OF_HOST_2), 25, 0)
        assert found.p_value < 1e-6


def test_two_hosts_and_a_pair_apart_are_all_found() -> None:
    hosts = [place for place, pair in enumerate(PAIRS) if 2 in pair or 4 in pair]
    apart = PAIRS.index((0, 1))
    found = culprit_pairs([[*hosts, apart]] * 12, PAIRS, ALPHA)
    assert {each.host for each in found if each.host >= 0} == {2, 4}
    assert [each.places for each in found if each.host < 0] == [(apart,)]


@pytest.mark.parametrize("rare", [True, False])
def test_one_bad_repeat_one_pair_or_a_few_everywhere_accuse_no_host(rare: bool) -> None:
    assert culprit_pairs([OF_HOST_2, [], [], [], []], PAIRS, ALPHA, rare=rare) == []
    (pair,) = culprit_pairs([[OF_HOST_2[0]]] * 9, PAIRS, ALPHA, rare=rare)
    assert pair.host == -1 and pair.places == (OF_HOST_2[0],)
    everywhere = [[(repeat * 4 + k) % len(PAIRS) for k in range(4)] for repeat in range(8)]
    assert culprit_pairs(everywhere, PAIRS, ALPHA, rare=rare) == []
    assert culprit_pairs([[0]] * 9, PAIRS[:2], ALPHA, rare=rare) == []


def test_a_slight_excess_is_none_however_many_measurements_show_it() -> None:
    """At 3,000 repeats 11 % against 10 % is significant, but no fault."""
    repeats = 3000
    common = [[place for place in range(len(PAIRS)) if (repeat + place) % 10 == 0] for repeat in range(repeats)]
    more = [[*each, *(OF_HOST_2 if repeat % 100 == 50 else [])] for repeat, each in enumerate(common)]
    unique = [sorted(set(each)) for each in more]
    assert culprit_pairs(unique, PAIRS, ALPHA, rare=False) == []


def test_a_bad_group_among_similar_ones() -> None:
    (found,) = culprit_groups([[3]] * 6, 8, ALPHA)
    assert (found.host, found.places) == (-1, (3,))
    assert culprit_groups([[3]], 8, ALPHA) == [] and culprit_groups([[0]] * 6, 1, ALPHA) == []


@given(st.integers(6, 40), st.integers(2, 9), st.data())
def test_pairs_that_are_bad_always_or_never_count_once(pairs: int, repeats: int, data: st.DataObject) -> None:
    """The evidence is then that of Fisher's test over pairs, of one measurement each."""
    slow = data.draw(st.integers(1, pairs - 1))
    assert design_effect([repeats] * slow, pairs, repeats) == pytest.approx(repeats)


def test_the_design_effect_of_drawn_pairs() -> None:
    """Against its definition: the variance of the number of bad measurements over that of independent ones."""
    draw = random.Random(7)
    pairs, repeats, share, stuck = 400, 5, 0.3, 0.4
    effects, totals = [], []
    for _ in range(samples(300, 3000).stop):
        bad = []
        for _ in range(pairs):
            always = draw.random() < share
            each = (always if draw.random() < stuck else draw.random() < share for _ in range(repeats))
            bad.append(sum(each))
        effects.append(design_effect([count for count in bad if count], pairs, repeats))
        totals.append(sum(bad))
    by_definition = pvariance(totals) / (pairs * repeats * share * (1 - share))
    assert sum(effects) / len(effects) == pytest.approx(by_definition, rel=0.3)
    assert sum(effects) / len(effects) == pytest.approx(1 + (repeats - 1) * stuck**2, rel=0.05)


def test_repeats_of_slow_paths_are_no_more_evidence_the_more_of_them_there_are() -> None:
    """5 of a host's 63 pairs are slow in every repeat, as 2 % of the others are; bursts that are free count each."""
    pairs = list(combinations(range(64), 2))
    own = [place for place, pair in enumerate(pairs) if 0 in pair]
    others = [place for place, pair in enumerate(pairs) if 0 not in pair][::50]
    for repeats in (3, 5, 20):
        found = culprit_pairs([[*own[:5], *others]] * repeats, pairs, ALPHA, rare=False)
        assert not [each for each in found if each.host >= 0], f"{repeats} repeats"
    free = [[*own[repeat::4], *others[repeat::5]] for repeat in range(4)]
    assert [each.host for each in culprit_pairs(free, pairs, ALPHA, rare=False)] == [0]
