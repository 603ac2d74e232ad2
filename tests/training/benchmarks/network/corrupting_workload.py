"""The network benchmark over a fabric that flips data: on rank 1, one element of every message above 1 KiB."""

from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.network.pytorch.suite import main

_BEYOND_ELEMENTS = 256
_all_reduce = dist.all_reduce


def _corrupting(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
    result = _all_reduce(tensor, *arguments, **options)
    if tensor.dtype is torch.float32 and tensor.numel() > _BEYOND_ELEMENTS and dist.get_rank() == 1:
        tensor[_BEYOND_ELEMENTS] += 1
    return result


if __name__ == "__main__":
    dist.all_reduce = _corrupting
    main()
