"""A workload that meets in barriers and has one rank fail in the way that its argument names."""

import os
import signal
import subprocess
import sys
import time

import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import init


def main() -> None:
    """Arguments: how rank 1 fails."""
    how = sys.argv[1]
    with init("gloo", timeout_s=30) as group:
        rank = group.placement.rank
        print(f"rank {rank} is ready", flush=True)
        subprocess.run(["echo", f"a child of rank {rank}"], check=True)
        dist.barrier()
        if how == "sleep":
            time.sleep(120)
        if rank == 1:
            fail(how)
        for _ in range(1000):
            dist.barrier()
            time.sleep(0.01)


def fail(how: str) -> None:
    """End this rank."""
    match how:
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("the data is not there")
        case "text":
            sys.exit("a sentence for people")


if __name__ == "__main__":
    main()
