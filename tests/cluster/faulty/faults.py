"""How a rank breaks: the settings of it, and what the rank does then. Needs no torch."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.case_config import CaseConfig

from . import hostile

CHUNK = 32 << 20


class Faults(CaseConfig):
    """Which rank breaks, how, and whether it does so every time."""

    fault: Literal[
        "none", "exit", "segfault", "memory", "leave", "vanish", "return", "stop", "hang", "hostile", "odd", "adds"
    ] = Field("none", description="how the rank ends, stands still, or what it leaves for the head node")
    rank: int = Field(3, ge=0, description="global rank that breaks")
    unless: str | None = Field(None, description="file that keeps it from breaking; the first time makes it")
    after: int = Field(25, ge=1, description="the step at whose end the rank breaks")
    prints: bool = Field(False, description="whether the other ranks print on from then, from a thread of their own")
    lines: int = Field(60, ge=0, description="lines that the rank writes before it breaks")


def strike(config: Faults, rank: int, step: int) -> bool:
    """Break this rank at the end of this step if the settings say so; gives whether it is to return from its work."""
    if step != config.after:
        return False
    if rank == config.rank:
        return config.fault == "return" or _break(config, rank)
    if config.prints:
        threading.Thread(target=_print_on, daemon=True).start()
    return False


def _break(config: Faults, rank: int) -> bool:
    """End this rank as the settings say."""
    if config.unless is not None:
        if Path(config.unless).exists():
            return False
        Path(config.unless).touch()
    for number in range(config.lines):
        print(f"line {number}; token={os.environ.get('HUGGING_TOKEN')}")
    leave = hostile.LEAVES.get(config.fault)
    if leave is not None:
        leave(rank)
    else:
        _end(config.fault)
    return False


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
