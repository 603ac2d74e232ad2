"""Starts ranks on this machine from the process that has loaded torch: each would else load it, for two CPU seconds."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from torch.multiprocessing.spawn import start_processes


def start(target: Callable[..., None], ranks: int, *args: object) -> None:
    """Call target(rank, *args) in so many processes, which find in their environment where to meet, until all ended.

    They are forked from this one, which has one thread as long as it has computed nothing.
    """
    # What a rank loads until its first update.
    from tests.training.benchmarks.driver.training import preloaded  # noqa: F401

    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork has none of the other threads"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    start_processes(_rank, (port, target, args), nprocs=ranks, start_method="fork")  # type: ignore[no-untyped-call]


def _rank(rank: int, port: int, target: Callable[..., None], args: tuple[object, ...]) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", MASTER_PORT=str(port))
    target(rank, *args)
