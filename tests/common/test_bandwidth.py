import pytest

from common.bandwidth import algbw_gbps, bus_factor, busbw_gbps, host_factor, host_gbps


@pytest.mark.parametrize(
    ("collective", "factors"),
    [
        ("all_reduce", {2: 1.0, 4: 1.5, 8: 1.75, 16: 1.875}),
        ("all_gather", {2: 0.5, 4: 0.75, 8: 0.875}),
        ("reduce_scatter", {2: 0.5, 4: 0.75, 8: 0.875}),
        ("all_to_all", {2: 0.5, 4: 0.75, 8: 0.875}),
        ("gather", {2: 0.5, 8: 0.875}),
        ("scatter", {2: 0.5, 8: 0.875}),
        ("broadcast", {2: 1.0, 8: 1.0}),
        ("reduce", {2: 1.0, 8: 1.0}),
        ("all_to_all_uneven", {2: 0.5, 8: 0.875}),
        ("send_recv", {2: 1.0}),
        ("send_recv_two_way", {2: 1.0}),
        ("barrier", {2: 0.0, 8: 0.0}),
    ],
)
def test_the_factors_of_nccl_tests(collective: str, factors: dict[int, float]) -> None:
    assert {n: bus_factor(collective, n) for n in factors} == factors
    assert bus_factor(collective, 1) == 0


def test_a_gigabyte_is_1e9_bytes() -> None:
    assert algbw_gbps(1_000_000_000, 1.0) == 1.0
    assert algbw_gbps(1 << 30, 0.5) == pytest.approx(2.147483648)


def test_bus_bandwidth_of_eight_ranks() -> None:
    assert busbw_gbps("all_reduce", 8_000_000_000, 0.1, 8) == pytest.approx(140.0)
    assert busbw_gbps("all_reduce", 8_000_000_000, 0.1, 1) == 0


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown collective 'allreduce'; allowed: all_gather"):
        bus_factor("allreduce", 2)
    with pytest.raises(ValueError, match="world_size = 0"):
        bus_factor("all_reduce", 0)
    with pytest.raises(ValueError, match=r"seconds = 0\.0"):
        algbw_gbps(8, 0.0)


@pytest.mark.parametrize(
    ("collective", "hosts", "width", "factor"),
    [
        ("send_recv", 2, 8, 8.0),  # 8 messages cross at once
        ("send_recv_two_way", 2, 8, 8.0),
        ("send_recv_ring", 2, 8, 1.0),
        ("all_to_all", 2, 8, 4.0),  # 8 ranks send half of S each
        ("hypercube", 4, 2, 1.5),
        ("scatter", 2, 8, 0.5),
        ("all_reduce", 2, 8, 2 * 15 / 16),
        ("all_reduce", 1, 8, 2 * 7 / 8),
    ],
)
def test_all_that_leaves_a_host_at_once_counts(collective: str, hosts: int, width: int, factor: float) -> None:
    ranks = hosts * width
    assert host_factor(collective, ranks, hosts) == pytest.approx(factor)
    busbw = 10.0 * bus_factor(collective, ranks)
    assert host_gbps(collective, busbw, ranks, hosts) == pytest.approx(10 * factor)


def test_ranks_that_are_not_spread_equally_keep_their_bus_bandwidth() -> None:
    assert host_gbps("send_recv", 7.0, 3, 2) == 7.0
    with pytest.raises(ValueError, match="3 ranks on 2 hosts"):
        host_factor("send_recv", 3, 2)
