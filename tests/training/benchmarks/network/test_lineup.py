"""How a round's groups are opened: by one split of the world on CUDA, by their members alone on gloo."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training.benchmarks.driver.launch.launching import plain_processes, run
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, Group, HostRanks, rounds
from training.benchmarks.network.pytorch.measuring.lineup import team_of

HOSTS, WIDTH = 512, 8


class Splits:
    """Stands for NCCL: notes each split of the world and each group that is made or destroyed on this rank."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.splits: list[list[list[int]]] = []
        self.made = self.destroyed = self.barriers = 0
        monkeypatch.setattr(dist, "split_group", self._split)
        monkeypatch.setattr(dist, "new_group", self._new)
        monkeypatch.setattr(dist, "destroy_process_group", self._destroy)
        monkeypatch.setattr(Team, "barrier", self._barrier)

    def _split(self, *, split_ranks: list[list[int]]) -> Any:
        self.splits.append(split_ranks)
        return object()

    def _new(self, *_: Any, **__: Any) -> None:
        self.made += 1

    def _destroy(self, _: Any) -> None:
        self.destroyed += 1

    def _barrier(self) -> None:
        self.barriers += 1


def _group_of(rank: int, world_size: int) -> ProcessGroup:
    placement = Placement(rank=rank, world_size=world_size, local_rank=0, local_world_size=WIDTH, nnodes=HOSTS)
    return ProcessGroup(placement=placement, device=torch.device("cuda", 0), backend="nccl")


def test_a_scan_of_512_hosts_of_8_splits_the_world_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups by new_group would be 130,816 splits in which all 4,096 ranks join."""
    hosts = [
        HostRanks(node_rank=node, name=f"h{node}", ranks=tuple(range(node * WIDTH, (node + 1) * WIDTH)))
        for node in range(HOSTS)
    ]
    found = rounds("pairs", hosts)
    world, rank = _group_of(77, HOSTS * WIDTH), 77
    nccl = Splits(monkeypatch)
    for each in found:
        with team_of(each, world) as mine:
            assert mine is not None
            index, team = mine
            assert rank in each.groups[index].ranks and team.ranks[team.rank] == rank and team.size == 2 * WIDTH
    assert len(nccl.splits) == nccl.destroyed == nccl.barriers == HOSTS - 1
    assert nccl.made == 0
    assert all(len(split) == HOSTS // 2 and len({*map(tuple, split)}) == HOSTS // 2 for split in nccl.splits)


def test_a_rank_that_rests_joins_the_split_and_gets_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostRanks(node_rank=0, name="h0", ranks=(0, 1))
    only = ConcurrentGroups(name="one", groups=(Group(hosts=(host,), ranks=(0, 1), label="h0"),))
    nccl = Splits(monkeypatch)
    with team_of(only, _group_of(2, 3)) as mine:
        assert mine is None
    assert nccl.splits == [[[0, 1]]] and nccl.destroyed == 0


def test_all_ranks_need_no_group_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostRanks(node_rank=0, name="h0", ranks=(0, 1))
    everyone = ConcurrentGroups(name="all", groups=(Group(hosts=(host,), ranks=(0, 1), label="all"),))
    nccl = Splits(monkeypatch)
    with team_of(everyone, _group_of(1, 2)) as mine:
        assert mine is not None and mine[1].handle is None
    assert not nccl.splits and nccl.made == 0


@pytest.mark.nightly
def test_over_gloo_a_rank_opens_its_own_group_alone(tmp_path: Path) -> None:
    code, output = run(tmp_path, plain_processes(4), ["tests.training.benchmarks.network.teams_workload"])
    for rank in range(4):
        log = (tmp_path / f"rank{rank}.out.log").read_text()
        assert code == 0, output + log
        assert "opened 6, right 6" in log, "3 rounds, twice"


@pytest.mark.parametrize(("size", "order"), [(2, (11, 10)), (3, (11, 10, 12)), (4, (12, 13, 10, 11)), (1, (10,))])
def test_a_team_backwards_has_its_halves_in_each_others_place(size: int, order: tuple[int, ...]) -> None:
    """So the ranks that received send, each to the one that sent to it."""
    ranks = tuple(range(10, 10 + size))
    for place in range(size):
        back = Team(ranks=ranks, rank=place, device=torch.device("cpu")).backwards()
        assert back.ranks == order and back.ranks[back.rank] == ranks[place]
