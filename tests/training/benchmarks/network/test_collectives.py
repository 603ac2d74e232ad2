"""All collectives on three gloo ranks; what each must deliver is known exactly."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from common.bandwidth import bus_factor
from tests.training.benchmarks.driver.launch.launching import plain_processes, run
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.choices import CollectiveName
from training.benchmarks.network.pytorch.operations import collectives
from training.benchmarks.network.pytorch.operations.exchanges import AllToAllUneven, AllToAllV

WORKLOAD = "tests.training.benchmarks.network.collectives_workload"
CPU = torch.device("cpu")


def test_every_collective_delivers_and_is_checked(tmp_path: Path) -> None:
    code, output = run(tmp_path, plain_processes(3), [WORKLOAD], deadline_s=240)
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
    assert bus_factor(name, 4) >= 0


@pytest.mark.parametrize(
    ("name", "asked", "exact"),
    [
        ("all_reduce", 1000, 1000),
        ("all_gather", 1000, 960),  # 250 elements over 3 ranks: 83 each, of which 80 fill lines of 16 bytes
        ("all_to_all", 1 << 20, (1 << 20) // 48 * 48),
        ("hypercube", 100, 96),
        ("reduce_scatter", 8, 12),  # at least one element a rank
        ("all_to_all_uneven", 1000, 1000),
        ("send_recv", 8, 8),
        ("barrier", 0, 0),
    ],
)
def test_sizes_are_whole_chunks(name: str, asked: int, exact: int) -> None:
    assert collectives.create(name, _team(3), torch.float32, 1, in_place=False).prepare(asked) == exact


@pytest.mark.parametrize("size", [1, 2, 3, 6, 8])
def test_parts_of_alltoallv_add_up_and_grow_with_the_distance(size: int) -> None:
    made = AllToAllV(_team(size), torch.float32, 1, in_place=False)
    assert made.prepare(1 << 16) == (1 << 16) // (16 * size) * 16 * size
    everyone = range(size)
    parts = [[made.part(one, other) for other in everyone] for one in everyone]
    assert {sum(row) for row in parts} | {sum(column) for column in zip(*parts, strict=True)} == {made.count}
    unit = 2 * (made.count // size) // size
    assert [parts[0][other] for other in everyone if other] == [other * unit for other in everyone if other]


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
