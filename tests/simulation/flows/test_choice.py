"""The choice of an algorithm: by modelled time, with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.flows.choice import LinkSpeeds, choose, protocol, ring_us
from simulation.flows.groups import ParallelSizes, RankGroup, megatron_group
from simulation.flows.train import NVLS, NVLS_TREE, PAT, RING, TREE

UNTIMED = settings(deadline=None)
KIB, MIB = 1 << 10, 1 << 20
A100, H100 = LinkSpeeds(240.0, 23.5, False), LinkSpeeds(370.8, 48.5, True)


def tp_group(ranks: int, per_server: int = 8) -> RankGroup:
    return megatron_group(ParallelSizes(ranks=ranks, per_server=per_server, tp=ranks), "TP", 0)


@pytest.mark.parametrize(
    ("algorithm", "size", "label"),
    [
        (RING, 4 * MIB, 0),
        (RING, 4 * MIB + 1, 1),
        (TREE, 16 * MIB, 1),
        (RING, 16 * MIB + 1, 2),
        (NVLS, MIB, 0),
        (NVLS, MIB + 1, 2),
        (NVLS_TREE, 64 * MIB, 2),
        (PAT, KIB, 2),
    ],
)
def test_protocols_are_labelled_by_size(algorithm: int, size: int, label: int) -> None:
    assert protocol(algorithm, size) == label


@pytest.mark.parametrize("op", ["AllGather", "ReduceScatter"])
@pytest.mark.parametrize(
    ("size", "per_server", "name"),
    [(512 * KIB, 1, "pat"), (MIB, 1, "pat"), (512 * KIB - 1, 1, "ring"), (MIB + 1, 1, "ring"), (MIB, 8, "ring")],
)
def test_pat_has_its_window(op: str, size: int, per_server: int, name: str) -> None:
    assert choose(op, tp_group(16, per_server), size, H100).name == name


@UNTIMED
@given(st.integers(1, 1 << 34), st.sampled_from([8, 16, 24, 72, 256, 4096]), st.sampled_from([A100, H100]))
def test_the_chosen_algorithm_is_the_fastest_that_is_possible(size: int, ranks: int, machine: LinkSpeeds) -> None:
    choice = choose("AllReduce", tp_group(ranks), size, machine)
    times = {each.name: each.us for each in choice.candidates if each.us is not None}
    assert times[choice.name] == min(times.values()) and choice.why.startswith(
        f"{choice.name}: {times[choice.name]:.1f} us"
    )
    assert all(each.reason for each in choice.candidates if each.us is None)
    assert any(name.startswith("nvls") for name in times) == machine.nvls


def test_latency_favours_trees_and_bandwidth_favours_rings() -> None:
    assert choose("AllReduce", tp_group(256), 64 * KIB, A100).name == "tree"
    assert choose("AllReduce", tp_group(16), 16 << 30, A100).name == "ring"
    assert choose("AllReduce", tp_group(8), 64 * MIB, H100).name == "nvls"


def test_the_rings_time_is_the_tuning_formula() -> None:
    # 14 steps of 3.4 us and a start of 8.4 us; 2 * 7/8 of the bytes at 240 GB/s.
    assert ring_us("AllReduce", tp_group(8), 240_000_000, A100) == pytest.approx(8.4 + 14 * 3.4 + 1750)
    # 30 steps, 4 of them between servers (14 us); 8 NICs of 23.5 GB/s are the slowest link.
    expected = 8.4 + 26 * 3.4 + 4 * 14.0 + 188e6 * 30 / 16 / 188e3
    assert ring_us("AllReduce", tp_group(16), 188_000_000, A100) == pytest.approx(expected)
