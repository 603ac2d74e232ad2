"""Starts the ranks of one node through torchrun's agent in this process, and reports how each failed rank ended."""

import os
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from common.memory_group import own_group
from protocol.node_record import RankFailure
from training.benchmarks.driver.launch.failures import RANK_GRACE_S, EndedRank, StartError, explained, ordered, seen
from training.benchmarks.driver.launch.rank_watch import RankWatch

RANK_MODULE = "training.benchmarks.driver.launch.rank"
TORCH_VERSION = str(torch.__version__)


def parse_options(options: Sequence[str], command: Sequence[str]) -> Namespace:
    """`options` as torchrun parses them, with `command` (entry module and its arguments) wrapped in `rank`.

    Raises:
        StartError: torchrun refuses the options; the message is torchrun's own.
    """
    messages = StringIO()
    try:
        with redirect_stderr(messages):
            arguments = torchrun.get_args_parser().parse_args([*options, "-m", RANK_MODULE, *command])
    except SystemExit as error:
        raise StartError(f"torchrun refuses its options: {messages.getvalue().strip().splitlines()[-1]}") from error
    if arguments.signals_to_handle == torchrun.get_args_parser().get_default("signals_to_handle"):
        # The launcher handles the others, once: torchrun's handler lets a second signal cut the clean-up short.
        arguments.signals_to_handle = "SIGQUIT"
    # Torch 2.11 and earlier have no such option: there a rank has torch's own 30 s to end.
    if getattr(arguments, "shutdown_timeout", 0) is None and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ:
        arguments.shutdown_timeout = RANK_GRACE_S
    return arguments


def local_world_size(arguments: Namespace) -> int:
    """Number of ranks on this node, in processes.

    Raises:
        StartError: torchrun does not know this value of --nproc_per_node.
    """
    try:
        return int(torchrun.determine_local_world_size(arguments.nproc_per_node))
    except ValueError as error:
        raise StartError(f"--nproc_per_node {arguments.nproc_per_node}: {error}") from error


def master(arguments: Namespace) -> tuple[str, int]:
    """Address and port at which the nodes meet."""
    if arguments.rdzv_endpoint:
        address, port = parse_rendezvous_endpoint(arguments.rdzv_endpoint, default_port=arguments.master_port or 0)
        return str(address), int(port)
    return str(arguments.master_addr), int(arguments.master_port or 0)


def run(arguments: Namespace, watch: RankWatch, log_dir: Path) -> list[RankFailure]:
    """Start the ranks and wait for all of them; returns the failures in order of time, an empty list for success.

    `watch` must be open; it is stopped before its times are read. When a rank fails, torchrun ends the others.

    Raises:
        StartError: the ranks could not be started at all.
    """
    group = own_group()
    kills_before = group.kills() if group else 0
    try:
        torchrun.run(arguments)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        watch.stop()
        failures = ordered([seen(_ended(*item), watch.ended_ms, log_dir) for item in error.failures.items()])
        return failures if group is None else explained(failures, group, group.kills() - kills_before)
    except Exception as error:
        raise StartError(f"torchrun could not run the ranks: {type(error).__name__}: {error}") from error
    return []


def _ended(rank: int, failure: ProcessFailure) -> EndedRank:
    return EndedRank(
        rank=rank,
        local_rank=failure.local_rank,
        pid=failure.pid,
        returncode=failure.exitcode,
        noticed_ms=failure.timestamp * 1000,
        error_file=failure.error_file_data,
    )
