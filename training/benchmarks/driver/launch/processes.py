"""Ranks as plain processes, for frameworks that come without torch: what torchrun's agent does on one node, no more.

It takes torchrun's options of that name. Ranks of several nodes meet by their framework's own means at MASTER_ADDR and
MASTER_PORT: nothing listens there, and no node waits for the others.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from common.memory_group import own_group
from protocol.node_record import RankFailure
from training.benchmarks.driver.launch.failures import RANK_GRACE_S, EndedRank, StartError, explained, ordered, seen
from training.benchmarks.driver.launch.rank_watch import RankWatch, now_ms

RANK_MODULE = "training.benchmarks.driver.launch.rank"
TORCH_VERSION = None
ERROR_FILE_ENV = "TORCHELASTIC_ERROR_FILE"


def parse_options(options: Sequence[str], command: Sequence[str]) -> Namespace:
    """The `options`, with `command` (entry module and its arguments) wrapped in `rank`.

    Raises:
        StartError: an option is unknown or has an impossible value.
    """
    parser = argparse.ArgumentParser(prog="launch --launcher processes", allow_abbrev=False)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node_rank", type=int, default=0)
    parser.add_argument("--nproc_per_node", type=int, default=1)
    parser.add_argument("--master_addr", default="127.0.0.1")
    parser.add_argument("--master_port", type=int, default=29500)
    parser.add_argument("--max_restarts", type=int, default=0, choices=(0,))
    parser.add_argument("--log_dir", type=Path, required=True, help="scratch for error files")
    messages = StringIO()
    try:
        with redirect_stderr(messages):
            arguments = parser.parse_args(options)
    except SystemExit as error:
        raise StartError(messages.getvalue().strip().splitlines()[-1]) from error
    if not (arguments.nproc_per_node >= 1 and 0 <= arguments.node_rank < arguments.nnodes):
        raise StartError(
            f"--nproc_per_node {arguments.nproc_per_node}, --node_rank {arguments.node_rank} of --nnodes"
            f" {arguments.nnodes}: allowed are one rank or more, and nodes from 0 to nnodes - 1"
        )
    arguments.command = ["-m", RANK_MODULE, *command]
    return arguments


def local_world_size(arguments: Namespace) -> int:
    """Number of ranks on this node, in processes."""
    return int(arguments.nproc_per_node)


def master(arguments: Namespace) -> tuple[str, int]:
    """Address and port where the ranks may meet."""
    return str(arguments.master_addr), int(arguments.master_port)


def environment_of(arguments: Namespace, local_rank: int) -> dict[str, str]:
    """Environment variables of one rank, with torchrun's names."""
    ranks = arguments.nproc_per_node
    return {
        "RANK": str(arguments.node_rank * ranks + local_rank),
        "WORLD_SIZE": str(arguments.nnodes * ranks),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": str(arguments.node_rank),
        "GROUP_WORLD_SIZE": str(arguments.nnodes),
        "MASTER_ADDR": arguments.master_addr,
        "MASTER_PORT": str(arguments.master_port),
        ERROR_FILE_ENV: str(arguments.log_dir / f"error{local_rank}.json"),
    }


def run(arguments: Namespace, watch: RankWatch, log_dir: Path) -> list[RankFailure]:
    """Start the ranks and wait for all of them; returns the failures, the cause first, an empty list for success.

    When a rank fails, the others are ended.

    Raises:
        StartError: a rank could not be started.
    """
    group = own_group()
    kills_before = group.kills() if group else 0
    noticed_ms: dict[int, int] = {}
    with _ranks(arguments) as processes:
        while any(process.returncode is None for process in processes) and not any(p.returncode for p in processes):
            _wait_for_one(processes)
        noticed_ms = {process.pid: now_ms() for process in processes if process.returncode}
    watch.stop()
    ended = [(number, process) for number, process in enumerate(processes) if process.returncode]
    ended.sort(key=lambda item: item[1].pid not in noticed_ms)  # those that were ended come last
    failures = [
        seen(_ended(arguments, number, process, noticed_ms), watch.ended_ms, log_dir) for number, process in ended
    ]
    if not failures:
        return []
    found = ordered(failures)
    return found if group is None else explained(found, group, group.kills() - kills_before)


def _wait_for_one(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Sleep until a child process ends, and record every rank that has; signal handlers run meanwhile.

    Where this is the first process of a container, adopted processes end here, too.
    """
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    if ended is not None and ended.si_pid not in {process.pid for process in processes}:
        os.waitpid(ended.si_pid, 0)
    for process in processes:
        process.poll()


@contextlib.contextmanager
def _ranks(arguments: Namespace) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The running ranks; those that are left at the end are told to stop, then killed."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for local_rank in range(arguments.nproc_per_node):
            environment = os.environ | environment_of(arguments, local_rank)
            try:
                processes.append(subprocess.Popen([sys.executable, "-u", *arguments.command], env=environment))
            except OSError as error:
                raise StartError(f"local rank {local_rank} could not be started: {error}") from error
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + RANK_GRACE_S
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def _ended(
    arguments: Namespace, local_rank: int, process: subprocess.Popen[bytes], noticed_ms: Mapping[int, int]
) -> EndedRank:
    environment = environment_of(arguments, local_rank)
    return EndedRank(
        rank=int(environment["RANK"]),
        local_rank=local_rank,
        pid=process.pid,
        returncode=process.returncode,
        noticed_ms=noticed_ms.get(process.pid, now_ms()),
        error_file=_read(Path(environment[ERROR_FILE_ENV])),
    )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
