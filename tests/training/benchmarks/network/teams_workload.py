"""Every pair of four gloo ranks twice, each rank a host of its own: what each rank opens, and whether it works."""

import sys
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import init
from training.benchmarks.network.patterns.schedule import HostRanks, rounds
from training.benchmarks.network.pytorch.measuring.lineup import team_of

REPEATS = 2


class Counted(dist.ProcessGroupGloo):
    """A backend that counts itself."""

    opened = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Counted.opened += 1
        super().__init__(*arguments, **options)


def main() -> None:
    """Print how many backends this rank opened, and how many sums were right."""
    with init("gloo", timeout_s=60) as group:
        dist.distributed_c10d.ProcessGroupGloo = Counted  # type: ignore[misc]
        size = group.placement.world_size
        hosts = [HostRanks(node_rank=rank, name=f"h{rank}", ranks=(rank,)) for rank in range(size)]
        right = 0
        for each in rounds("pairs", hosts) * REPEATS:
            with team_of(each, group) as mine:
                assert mine is not None
                total = torch.tensor(group.placement.rank)
                dist.all_reduce(total, group=mine[1].handle)
                right += int(total) == sum(mine[1].ranks)
        print(f"opened {Counted.opened}, right {right}", flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
