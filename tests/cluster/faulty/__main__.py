"""A benchmark whose ranks work side by side until one of them breaks; `project` of tests.cluster.faulty_project
makes it one of the repository's.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from protocol import pulse
from protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import WorkloadContext, open_run

from . import hostile
from .pytorch.config import Config

CHUNK = 32 << 20


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
            if step == config.after and run.group.placement.rank == config.rank:
                if config.fault == "return":
                    return
                _break(run)
            elif step == config.after and config.prints:
                threading.Thread(target=_print_on, daemon=True).start()
            time.sleep(config.pause)
        run.logger.log(Event.TRAIN_END)
        run.logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin})


def _break(run: WorkloadContext[Config]) -> None:
    """End this rank as the settings say."""
    config = run.config
    if config.unless is not None:
        if Path(config.unless).exists():
            return
        Path(config.unless).touch()
    for number in range(config.lines):
        print(f"line {number}; token={os.environ.get('HUGGING_TOKEN')}")
    leave = hostile.LEAVES.get(config.fault)
    if leave is not None:
        leave(run.group.placement.rank)
    else:
        _end(config.fault)


def _end(fault: str) -> None:
    match fault:
        case "exit":
            sys.exit(7)
        case "leave":
            sys.exit(0)
        case "vanish":
            os._exit(0)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hang":
            time.sleep(3600)
        case "segfault":
            ctypes.string_at(0)
        case "memory":
            held = []
            while True:
                held.append(b"x" * CHUNK)


def _print_on() -> None:
    """Write lines for ever, whatever becomes of the work."""
    while True:
        print("still here", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
