"""The choice of an algorithm: by modelled time, with the reason."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.analytical import parts
from simulation.flows.choice import LinkSpeeds, choose, protocol
from simulation.flows.groups import ParallelSizes, RankGroup, megatron_group
from simulation.flows.names import CELLS
from simulation.flows.train import NVLS, NVLS_TREE, PAT, RING, TREE
from tests.simulation.analytical import asking

UNTIMED = settings(deadline=None)
KIB, MIB = 1 << 10, 1 << 20
A100, H100 = LinkSpeeds(240.0, 23.5, None), LinkSpeeds(370.8, 48.5, 475.0, "H100")


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
    assert any(name.startswith("nvls") for name in times) == (machine.nvls is not None)


def test_latency_favours_trees_and_bandwidth_favours_rings() -> None:
    assert choose("AllReduce", tp_group(256), 64 * KIB, A100).name == "tree"
    assert choose("AllReduce", tp_group(16), 16 << 30, A100).name == "ring"
    assert choose("AllReduce", tp_group(8), 64 * MIB, H100).name == "nvls"


def test_a_trees_time_is_the_tuning_formula() -> None:
    # Up and down: a hop of 14 us between the two servers and 7 of 4 us inside; a start of 8.4 us; twice the bytes at
    # 0.92 of 8 NICs of 23.5 GB/s.
    tree = {each.name: each.us for each in choose("AllReduce", tp_group(16), 188_000_000, A100).candidates}["tree"]
    assert tree == pytest.approx(8.4 + 2 * (14.0 + 7 * 4.0) + 2 * 188e6 / 188e3 / 0.92)


@pytest.mark.parametrize("ranks", [2, 8, 16, 72, 1024])
@pytest.mark.parametrize("op", CELLS)
@pytest.mark.parametrize("size", [1, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 1 << 30, 32 << 30])
def test_both_verbs_have_one_cost_model(op: str, ranks: int, size: int, tmp_path: Path) -> None:
    """A workload of one TP collective takes in `analytical` what `flows` says that it takes."""
    part = parts.GPUS["H100"]
    choice = choose(op, tp_group(ranks), size, LinkSpeeds(part.nvlink, parts.NICS["cx7"], part.nvls, "H100"))
    workload = asking.write(tmp_path / "w.txt", [asking.row(f"{CELLS[op]} {size}")], tp=ranks, gpus=ranks)
    told = asking.times(workload, "-g", str(ranks), "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100")
    assert told["forward"]["communication_us"] == pytest.approx(choice.candidates[0].us, abs=1e-3)
