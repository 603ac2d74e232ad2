"""The network benchmark whose last rank hangs or dies in the middle of the third size; first argument: hang or die."""

import os
import sys
import time
from typing import Any

import torch.distributed as dist

from training.benchmarks.network.pytorch.suite import main

BROKEN_ELEMENTS = 1024  # 4 KiB of float32, the third size
_all_reduce = dist.all_reduce


def _ending(way: str) -> Any:
    def all_reduce(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if tensor.numel() == BROKEN_ELEMENTS and dist.get_rank() == dist.get_world_size() - 1:
            if way == "die":
                os._exit(9)
            print("hangs now", flush=True)
            time.sleep(600)
        return _all_reduce(tensor, *arguments, **options)

    return all_reduce


if __name__ == "__main__":
    dist.all_reduce = _ending(sys.argv.pop(1))
    main()
