"""A benchmark whose ranks work side by side until one of them breaks; `project` of tests.cluster.faulty_project
makes it one of the repository's.
"""

import os
import time

import torch
import torch.distributed as dist

from protocol import pulse
from protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import open_run

from .faults import strike
from .pytorch.config import Config


def main() -> None:
    """Entry point."""
    begin = time.perf_counter()
    with open_run("faulty", "pytorch", Config) as run:
        config = run.config
        print(f"HUGGING_TOKEN={os.environ.get('HUGGING_TOKEN')} service.api_key={os.environ.get('SERVICE_SECRET')}")
        run.logger.log(Event.INIT_END)
        run.logger.log(Event.TRAIN_START, {"total_steps": config.steps})
        for step in range(1, config.steps + 1):
            if config.together:
                dist.all_reduce(torch.ones(1))
            else:
                pulse.step()
            if strike(config, run.group.placement.rank, step):
                return
            time.sleep(config.pause)
        run.logger.log(Event.TRAIN_END)
        run.logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
