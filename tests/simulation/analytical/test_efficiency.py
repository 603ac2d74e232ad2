"""The measured efficiencies: as published at their sizes and servers, between them interpolated."""

from itertools import pairwise
from math import log2

import pytest

from simulation.analytical.efficiency import ALLTOALL_TABLE, NIC, NVLINK, SERVERS, curve, efficiency, table
from simulation.analytical.latency import MEASURED_US, latency_us

MIB = 1 << 20
TABLES = (NIC, NVLINK, ALLTOALL_TABLE)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("at", "servers"), list(enumerate(SERVERS)))
def test_measured_points_are_the_published_ones(name: str, at: int, servers: int) -> None:
    column = table(name).columns[at]
    if column[-1] is None:
        assert curve(name, servers, False) == curve(name, 16, False), "nothing was measured: as among 16 servers"
        return
    for size, share, before in zip(table(name).sizes, column, (None, *column), strict=False):
        assert share is not None
        if before is not None and share > 2 * before:
            break
        assert efficiency(name, size, servers, False) == pytest.approx(share / column[-1])


def test_between_numbers_of_servers_it_is_interpolated_in_the_logarithm() -> None:
    two, three, four = (efficiency(NIC, 64 * MIB, servers, False) for servers in (2, 3, 4))
    assert three == pytest.approx(two + (four - two) * log2(3 / 2))
    assert min(two, four) < three < max(two, four)
    assert efficiency(NIC, 64 * MIB, 4096, False) == efficiency(NIC, 64 * MIB, 128, False)


def test_between_sizes_it_is_interpolated_and_outside_it_stays() -> None:
    low, middle, high = (efficiency(NVLINK, size * MIB, 1, False) for size in (16, 24, 32))
    assert middle == pytest.approx((low + high) / 2)
    assert efficiency(NVLINK, 1, 1, False) == low
    assert efficiency(NVLINK, 1 << 60, 1, False) == 1


def test_the_efficiency_of_one_gpu_a_server_is_read_from_its_own_columns() -> None:
    assert efficiency(NIC, 16 * MIB, 64, True) == pytest.approx(0.77 / 0.96)
    assert efficiency(NIC, 16 * MIB, 64, False) < 0.05


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("servers", [1, 2, 3, 16, 50, 64, 100, 128, 1000])
def test_a_larger_message_never_takes_less_time(name: str, alone: bool, servers: int) -> None:
    sizes = [int(16 * MIB * 2 ** (step / 13)) for step in range(140)]
    times = [size / efficiency(name, size, servers, alone) for size in sizes]
    assert all(first <= second * (1 + 1e-12) for first, second in pairwise(times))


def test_the_published_table_itself_is_not_like_that() -> None:
    column = table(NIC).columns[SERVERS.index(128)]
    assert column[0] is not None and column[1] is not None and column[1] > 2 * column[0]


def test_latencies_are_the_measured_ones_and_grow() -> None:
    for ranks, least in MEASURED_US.items():
        assert latency_us(ranks, False) == pytest.approx(least)
    for inside in (True, False):
        grown = [latency_us(ranks, inside) for ranks in range(1, 3000)]
        assert all(first <= second for first, second in pairwise(grown)) and grown[0] == 0
    assert latency_us(8, True) == 15 and latency_us(72, True) < 30 < latency_us(72, False)
    assert latency_us(1024, False) > 1900
