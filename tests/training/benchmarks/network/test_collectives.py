"""All collectives on three gloo ranks; what each must deliver is known exactly."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from tests.training.benchmarks.driver.launch.launching import run
from tests.training.benchmarks.network.conftest import plain_processes
from training.benchmarks.network import bandwidth
from training.benchmarks.network.pytorch import collectives, pattern
from training.benchmarks.network.pytorch.config import ELEMENT_BYTES, CollectiveName
from training.benchmarks.network.pytorch.exchanges import AllToAllUneven
from training.benchmarks.network.pytorch.team import Team

WORKLOAD = "tests.training.benchmarks.network.collectives_workload"
CPU = torch.device("cpu")


def test_every_collective_delivers_and_is_checked(tmp_path: Path) -> None:
    code, output = run(tmp_path, [*plain_processes(), "--nproc_per_node", "3"], [WORKLOAD])
    for rank in range(3):
        log = (tmp_path / f"rank{rank}.out.log").read_text()
        assert code == 0, output + log
        assert "all right" in log
        assert "FutureWarning" not in log


def _team(size: int, rank: int = 0) -> Team:
    return Team(ranks=tuple(range(size)), rank=rank, device=CPU)


@pytest.mark.parametrize("name", get_args(CollectiveName))
def test_each_name_has_a_collective_and_a_factor(name: str) -> None:
    made = collectives.create(name, _team(4), torch.float32, 1, in_place=False)
    assert made.memory_bytes(1 << 20) >= (0 if name == "barrier" else 1 << 20)
    assert bandwidth.bus_factor(name, 4) >= 0


@pytest.mark.parametrize(
    ("name", "asked", "exact"),
    [
        ("all_reduce", 1000, 1000),
        ("all_gather", 1000, 996),  # 250 elements over 3 ranks: 83 each
        ("reduce_scatter", 8, 12),  # at least one element a rank
        ("all_to_all_uneven", 1000, 1000),
        ("send_recv", 8, 8),
        ("barrier", 0, 0),
    ],
)
def test_sizes_are_whole_chunks(name: str, asked: int, exact: int) -> None:
    assert collectives.create(name, _team(3), torch.float32, 1, in_place=False).prepare(asked) == exact


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("count", [1, 7, 1000, 12345])
def test_uneven_parts_add_up_for_senders_and_receivers(size: int, count: int) -> None:
    made = AllToAllUneven(_team(size), torch.int8, 1, in_place=False)
    made.prepare(count)
    everyone = range(size)
    for one in everyone:
        assert sum(made.part(one, other) for other in everyone) == count
        assert sum(made.part(other, one) for other in everyone) == count
    if size > 1 and count > 100:
        assert len({made.part(0, other) for other in everyone}) == size


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in ELEMENT_BYTES])
def test_moved_data_differs_between_any_two_pairs(dtype: torch.dtype) -> None:
    seen = {tuple(pattern.moved(a, b, dtype, 42)[:64].tolist()) for a in range(16) for b in range(16)}
    assert len(seen) == 256
