"""A workload of little but communication, for a rank to be lost in: it opens a group and meets in collectives."""

import sys
import time

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import init


def main() -> None:
    """Entry of every rank; ends after a minute where none is lost."""
    with init("gloo", timeout_s=float(sys.argv[1])):
        dist.barrier()
        for number in range(6000):
            dist.all_reduce(torch.ones(1 + number % 7 * 1000))
            time.sleep(0.01)


if __name__ == "__main__":
    main()
