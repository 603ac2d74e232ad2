"""A workload that has one rank fail in the way that its argument names.

Ranks that lose a peer meet in barriers of gloo; the others do without torch, which takes two CPU seconds to load.
"""

import os
import signal
import subprocess
import sys
import time

APART = ("sleep", "raise", "text")


def main() -> None:
    """Arguments: how rank 1 fails."""
    how = sys.argv[1]
    if how in APART:
        announce()
        fail(how)
        return
    import torch.distributed as dist

    from training.benchmarks.driver.workload.process_group import init

    with init("gloo", timeout_s=30):
        announce()
        dist.barrier()
        fail(how)
        for _ in range(1000):
            dist.barrier()
            time.sleep(0.01)


def announce() -> None:
    """Write that this rank runs, and have a child do so."""
    rank = os.environ["RANK"]
    print(f"rank {rank} is ready", flush=True)
    subprocess.run(["echo", f"a child of rank {rank}"], check=True)


def fail(how: str) -> None:
    """End rank 1, or let a rank sleep."""
    if how == "sleep" or (how in APART and os.environ["RANK"] == "0"):
        time.sleep(120)
    if os.environ["RANK"] == "1":
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
