"""A workload whose ranks step together until one of them leaves without a word, or stands still, as its arguments say.

Arguments: how, which rank, whether the ranks step together (`together`) or each for itself (`apart`).
"""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

from protocol.perflog import Event, PerfLogger, SubmitInfo
from training.benchmarks.driver.workload.process_group import init

STEPS = 100_000
FAULT_AT = 20


def main() -> None:
    """Entry of every rank."""
    how, chosen, together = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "together"
    with init("gloo", timeout_s=120) as group:
        place = group.placement
        logger = PerfLogger(place.rank)
        log_begin(logger, place.world_size, place.nnodes)
        for step in range(1, STEPS + 1):
            logger.log(Event.STEP_BEGIN, {"step": step})
            if step == FAULT_AT and place.rank == chosen:
                if how == "return":
                    return
                fault(how)
            if step == FAULT_AT and how == "print" and place.rank != chosen:
                threading.Thread(target=print_on, daemon=True).start()
            if together:
                dist.all_reduce(torch.ones(4))
            logger.log(Event.STEP_END, {"step": step})
            time.sleep(0.02)


def log_begin(logger: PerfLogger, world_size: int, nnodes: int) -> None:
    """What every benchmark logs before its first step."""
    info = SubmitInfo(
        vendor="cpu",
        model="leaving",
        framework="pytorch",
        case=None,
        config={},
        world_size=world_size,
        nnodes=nnodes,
        torch=str(torch.__version__),
        backend="gloo",
    )
    logger.log(Event.SUBMIT_INFO, info.model_dump())
    for event in (Event.INIT_START, Event.INIT_END, Event.TRAIN_START):
        logger.log(event)


def fault(how: str) -> None:
    """Leave, or stand still."""
    match how:
        case "sys.exit":
            sys.exit(0)
        case "os._exit":
            os._exit(0)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep" | "print":
            time.sleep(600)


def print_on() -> None:
    """Write lines for ever, whatever the rank itself does."""
    while True:
        print("still here", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
