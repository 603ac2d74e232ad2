"""The network benchmark where every rank is a host of its own; argv begins with the slow rank, its delay in s, and that
of the others, which makes their times as steady as those of a network.
"""

import os
import sys
import time
from typing import Any

import torch.distributed as dist

from training.benchmarks.network.pytorch.suite import main

_all_reduce = dist.all_reduce

if __name__ == "__main__":
    slow, delay_s, usual_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    del sys.argv[1:4]
    os.environ["GROUP_RANK"], os.environ["GROUP_WORLD_SIZE"] = os.environ["RANK"], os.environ["WORLD_SIZE"]

    def delayed(*arguments: Any, **options: Any) -> Any:
        """all_reduce that begins later, on the slow rank later still."""
        time.sleep(delay_s if int(os.environ["RANK"]) == slow else usual_s)
        return _all_reduce(*arguments, **options)

    dist.all_reduce = delayed
    main()
