"""Starts ranks on this machine from one process that has loaded torch: each would else load it, for two CPU seconds."""

import atexit
import os
import socket
from collections.abc import Callable
from multiprocessing import forkserver, get_context

from torch.multiprocessing.spawn import start_processes

PRELOADED = ["tests.training.benchmarks.driver.training.preloaded"]


def start(target: Callable[..., None], ranks: int, *args: object) -> None:
    """Call target(rank, *args) in so many processes, which find in their environment where to meet, until all ended.

    `target` is a function of the module that python -m runs. The process that they are forked from has one thread.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    get_context("forkserver").set_forkserver_preload(PRELOADED)
    # Else nobody waits for it, and the CPU seconds of all ranks are in no file's sum (tests/budgets.py).
    atexit.register(forkserver._forkserver._stop)  # type: ignore[attr-defined]
    start_processes(_rank, (port, target, args), nprocs=ranks, start_method="forkserver")  # type: ignore[no-untyped-call]


def _rank(rank: int, port: int, target: Callable[..., None], args: tuple[object, ...]) -> None:
    # The process that is forked keeps the environment of its own start.
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", MASTER_PORT=str(port))
    target(rank, *args)
