"""Cases side by side: none on the hosts of another, in few waves, the same whatever their order of time."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from run_benchmarks.plan.plan import Plan
from run_benchmarks.plan.side_by_side import Demand, chosen, waves
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.value_types import Placement
from tests.run_benchmarks.conftest import Load

HOSTS = tuple(f"n{number}" for number in range(8))
PLACEMENTS: tuple[Placement, ...] = ("contiguous", "spread")


def demands(sizes: Sequence[int], allowed: Sequence[tuple[str, ...]] | None = None) -> list[Demand]:
    allowed = [HOSTS] * len(sizes) if allowed is None else allowed
    return [
        Demand(name=f"C{number}", nnodes=size, allowed=hosts)
        for number, (size, hosts) in enumerate(zip(sizes, allowed, strict=True))
    ]


@given(
    some.lists(some.tuples(some.integers(1, 8), some.permutations(HOSTS), some.integers(1, 8)), max_size=12),
    some.integers(1, 5),
    some.sampled_from(PLACEMENTS),
)
def test_each_case_has_its_hosts_in_one_wave_and_shares_none(
    wanted: list[tuple[int, list[str], int]], most: int, placement: Placement
) -> None:
    made = demands([n for n, _, _ in wanted], [tuple(order[: max(n, least)]) for n, order, least in wanted])
    found = waves(made, most, placement)
    assert sorted(name for wave in found for name in wave) == sorted(each.name for each in made)
    assert found == waves(made, most, placement)
    for wave in found:
        assert len(wave) <= most
        used = [host for hosts in wave.values() for host in hosts]
        assert len(used) == len(set(used))
        for name, hosts in wave.items():
            demand = next(each for each in made if each.name == name)
            assert len(hosts) == demand.nnodes and set(hosts) <= set(demand.allowed)


def fewest(sizes: tuple[int, ...], room: int) -> int:
    """The fewest waves of so many hosts, by trying all ways to divide the cases among them."""
    for count in range(len(sizes) + 1):
        for places in itertools.product(range(count), repeat=len(sizes)):
            loads = [
                sum(size for size, place in zip(sizes, places, strict=True) if place == each) for each in range(count)
            ]
            if all(load <= room for load in loads):
                return count
    raise AssertionError("unreachable: one wave for each case always does")


@given(some.lists(some.integers(1, 8), min_size=1, max_size=6).map(tuple))
def test_the_waves_are_few(sizes: tuple[int, ...]) -> None:
    """First fit decreasing needs at most 11/9 of the fewest and 6/9 (Dosa, 2007)."""
    assert 9 * len(waves(demands(sizes), len(sizes), "contiguous")) <= 11 * fewest(sizes, len(HOSTS)) + 6


def test_one_at_a_time_is_the_order_of_cases_on_the_first_hosts() -> None:
    found = waves(demands([2, 8, 1]), 1, "contiguous")
    assert found == [{"C0": HOSTS[:2]}, {"C1": HOSTS}, {"C2": HOSTS[:1]}]


def test_placement_takes_neighbours_or_equal_distances_of_what_is_free() -> None:
    (four,) = demands([4])
    assert chosen(four, {"n1"}, "contiguous") == HOSTS[2:6]
    assert chosen(four, {"n1", "n4"}, "contiguous") == ("n0", "n2", "n3", "n5"), "no four in a row are free"
    assert chosen(four, (), "spread") == ("n0", "n2", "n4", "n6")
    assert chosen(four, {"n0", "n2", "n4", "n6"}, "spread") == ("n1", "n3", "n5", "n7")


CLUSTER = "HOSTS = ['a', 'b', 'c', 'd']\nSSH_USER = 'me'\n"
TEST = """VENDOR = "cpu"
RUNTIME = "process"
CASES = ["ALL", "PAIR", "ONE"]
_case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nproc": 1}
ALL = {**_case, "nnodes": 4}
PAIR = {**_case, "nnodes": 2}
ONE = {**_case, "nnodes": 1, "hosts": ["a", "d"]}
"""


def hosts_of(plan: Plan) -> dict[str, list[str]]:
    return {case.name: [node.host for node in case.rounds[0].nodes] for case in plan.cases}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", {"ALL": ["a", "b", "c", "d"], "PAIR": ["a", "b"], "ONE": ["a"]}),
        ("MAX_PARALLEL_CASES = 2\n", {"ALL": ["a", "b", "c", "d"], "PAIR": ["a", "b"], "ONE": ["d"]}),
        ("PLACEMENT = 'spread'\n", {"ALL": ["a", "b", "c", "d"], "PAIR": ["a", "c"], "ONE": ["a"]}),
    ],
)
def test_the_plan_says_on_which_hosts_cases_run(load: Load, settings: str, expected: dict[str, list[str]]) -> None:
    prepared = prepare(load(TEST + settings, CLUSTER), "run20261121191924")
    assert hosts_of(prepared.plan) == expected
    assert prepared.plan.waves == (("ALL",), *((("PAIR", "ONE"),) if "PARALLEL" in settings else (("PAIR",), ("ONE",))))
    again = prepared.attempt(prepared.plan, "PAIR", 1, 2)
    assert [node.host for node in again.nodes] == expected["PAIR"] and again.master == expected["PAIR"][0]


def test_a_number_of_cases_that_never_run_side_by_side_is_told(load: Load) -> None:
    text = f"{TEST}CASES = ['ALL', 'PAIR']\nMAX_PARALLEL_CASES = 3\n"
    told = "MAX_PARALLEL_CASES has no effect: no two cases have room beside each other on 4 hosts"
    assert told in prepare(load(text, CLUSTER), "run20261121191924").resolved.warnings
