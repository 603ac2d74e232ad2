"""Change points: how often a series without one is flagged, and how often a step is found and placed; live as well."""

import random
from statistics import median

import pytest

from run_benchmarks.history.change_points import change_points, trend
from tests.run_benchmarks.history.series import Kind, noise, with_drift, with_step
from tests.tiers import most, samples


@pytest.mark.parametrize("kind", ["flat", "heavy", "autocorrelated"])
def test_looking_back_five_percent_of_series_without_a_change_are_flagged_at_most(kind: Kind) -> None:
    seeds = samples(300, 1000)
    flagged = sum(bool(change_points(noise(random.Random(seed), kind))) for seed in seeds)
    assert flagged <= (most(len(seeds), 0.05) if len(seeds) < 1000 else 50)


@pytest.mark.parametrize("kind", ["flat", "heavy", "autocorrelated"])
def test_looking_back_a_step_is_placed_within_two_runs_in_95_percent(kind: Kind) -> None:
    seeds, missed = samples(80, 1000), 0
    for seed in seeds:
        values, place = with_step(random.Random(seed), kind)
        missed += not any(abs(point.index - place) <= 2 for point in trend(values).points)
    assert missed <= (most(len(seeds), 0.05) if len(seeds) < 1000 else 50)


@pytest.mark.parametrize("kind", ["flat", "heavy"])
def test_a_drift_is_told_apart_from_a_step(kind: Kind) -> None:
    seeds = samples(60, 500)
    told = [trend(with_drift(random.Random(seed), kind)) for seed in seeds]
    assert sum(each.state != "drifting" for each in told) <= most(len(seeds), 0.08)
    steps = [trend(with_step(random.Random(seed), kind)[0]) for seed in seeds]
    assert sum(each.state == "drifting" for each in steps) <= most(len(seeds), 0.02)
    assert all(each.drift is not None and not each.points for each in told if each.state == "drifting")


@pytest.mark.parametrize("kind", ["flat", "heavy"])
def test_live_five_percent_of_series_without_a_change_are_ever_called_changed(kind: Kind) -> None:
    seeds, alarms = samples(60, 1000), 0
    for seed in seeds:
        values = noise(random.Random(seed), kind)
        states = {trend(values[:runs]).state for runs in range(2, len(values) + 1)}
        alarms += bool(states & {"changed", "drifting"})
    assert alarms <= most(len(seeds), 0.05)


def test_live_a_step_is_found_in_85_percent_after_five_runs_and_in_95_after_eight() -> None:
    seeds, missed, suspected = samples(100, 1000), {5: 0, 8: 0}, 0
    for seed in seeds:
        values, place = with_step(random.Random(seed), "flat")
        for runs in missed:
            states = {trend(values[: place + more]).state for more in range(1, runs + 1)}
            missed[runs] += not states & {"changed", "drifting"}
        suspected += any(trend(values[: place + more]).state in ("suspected", "changed") for more in (2, 3))
    assert missed[5] <= most(len(seeds), 0.15) and missed[8] <= most(len(seeds), 0.05)
    assert suspected >= len(seeds) - most(len(seeds), 0.5), "half of the steps are suspected after two or three runs"


def test_a_suspected_change_says_since_when_and_how_many_runs_would_tell() -> None:
    source = random.Random(1)
    values = [source.gauss(100, 1) for _ in range(20)]
    assert trend(values).state == "steady"
    found = trend([*values, 92.0, 92.5])
    assert (found.state, found.since, found.runs_needed) == ("suspected", 20, 3)
    confirmed = trend([*values, 92.0, 92.5, 91.5, 92.2, 92.1])
    assert (confirmed.state, confirmed.since) == ("changed", 20)
    assert trend(values[:5]).state == "too few runs" and trend([]).state == "too few runs"


def test_levels_are_medians_and_two_changes_are_two() -> None:
    source = random.Random(3)
    values = [source.gauss(level, 1) for level in (100,) * 25 + (110,) * 20 + (105,) * 25]
    points = change_points(values)
    assert [point.index for point in points] == [25, 45]
    assert points[0].before == median(values[:25]) and points[0].after == median(values[25:45])
    assert points[0].percent == pytest.approx(10, abs=1)
    assert change_points([5.0] * 40) == (), "nothing ever changes"
    assert [point.index for point in change_points([5.0] * 20 + [6.0] * 20)] == [20], "without any noise"
    assert trend([5.0] * 20 + [6.0] * 2).state == "changed"


def test_a_change_of_one_deviation_that_lasts_is_found_though_small() -> None:
    source = random.Random(4)
    values = [source.gauss(level, 1) for level in (0,) * 150 + (1.2,) * 150]
    (point,) = change_points(values)
    assert abs(point.index - 150) < 25


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["flat", "heavy"])
def test_apache_otava_finds_no_more_steps_and_places_them_alike(kind: Kind) -> None:
    from otava.analysis import compute_change_points  # which loads pandas and scipy, for this test alone

    seeds, ours, theirs, apart = range(1000), 0, 0, []
    for seed in seeds:
        values, place = with_step(random.Random(seed), kind)
        mine = [point.index for point in trend(values).points]
        found, _ = compute_change_points(values, window_len=50, max_pvalue=0.001)
        other = [point.index for point in found]
        ours += any(abs(index - place) <= 2 for index in mine)
        theirs += any(abs(index - place) <= 2 for index in other)
        if len(mine) == len(other) == 1:
            apart.append(abs(mine[0] - other[0]))
    assert ours >= theirs - 10, "one point of a thousand series less than otava's at most"
    assert sum(gap > 1 for gap in apart) <= 0.05 * len(apart) and len(apart) > 400
