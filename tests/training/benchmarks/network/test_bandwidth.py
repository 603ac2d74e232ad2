import pytest

from training.benchmarks.network.bandwidth import algbw_gbps, bus_factor, busbw_gbps


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
