"""Rank 0 stores a value as its last act and leaves; the others read it a second later."""

import time
from datetime import timedelta

import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import init

if __name__ == "__main__":
    with init("gloo", timeout_s=30) as group:
        store = dist.distributed_c10d._get_default_store()
        if group.placement.rank == 0:
            store.set("last", "words")
        else:
            time.sleep(1)
            store.wait(["last"], timedelta(seconds=10))
            print(f"rank {group.placement.rank} read {store.get('last').decode()}", flush=True)
