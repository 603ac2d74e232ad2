"""torchrun's agent in this process: starts the ranks of one node and says exactly how each of them failed."""

import os
import signal
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from training.benchmarks.driver.memory_kills import MemoryGroup, own_group
from training.benchmarks.driver.node_record import RankFailure, signal_name
from training.benchmarks.driver.rank import log_name
from training.benchmarks.driver.rank_watch import RankWatch

RANK_MODULE = "training.benchmarks.driver.rank"
TORCH_VERSION = str(torch.__version__)
# Seconds between SIGTERM and SIGKILL for the ranks; below Docker's 10 s between its own two, above what gloo needs.
RANK_GRACE_S = 5
# How late the watching thread may learn of an end on a busy host (measured here: below 10 ms, rarely more).
WATCH_LATENESS_MS = 200
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
# By these words gloo, NCCL and torch's TCPStore say that the other end of a connection is gone.
_LOST_PEER = (
    "connection closed by peer",
    "connection reset by peer",
    "connection closed by remote peer",
    "caused by a remote worker",
    "remote process exited or there was a network error",
    "did the remote server shutdown or crash",
)


class TorchrunError(Exception):
    """torchrun refused its options or could not bring the ranks together."""


def parse_options(options: Sequence[str], command: Sequence[str]) -> Namespace:
    """torchrun's own view of its `options`, with `command` (entry module and its arguments) wrapped in `driver.rank`.

    Raises TorchrunError with torchrun's own message.
    """
    messages = StringIO()
    try:
        with redirect_stderr(messages):
            arguments = torchrun.get_args_parser().parse_args([*options, "-m", RANK_MODULE, *command])
    except SystemExit as error:
        raise TorchrunError(f"torchrun refuses its options: {messages.getvalue().strip().splitlines()[-1]}") from error
    if arguments.signals_to_handle == torchrun.get_args_parser().get_default("signals_to_handle"):
        # The launcher handles the others, once: torchrun's handler lets a second signal cut the clean-up short.
        arguments.signals_to_handle = "SIGQUIT"
    if arguments.shutdown_timeout is None and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ:
        arguments.shutdown_timeout = RANK_GRACE_S
    return arguments


def local_world_size(arguments: Namespace) -> int:
    """Number of ranks on this node. Raises TorchrunError for a --nproc_per_node that torchrun does not know."""
    try:
        return int(torchrun.determine_local_world_size(arguments.nproc_per_node))
    except ValueError as error:
        raise TorchrunError(f"--nproc_per_node {arguments.nproc_per_node}: {error}") from error


def master(arguments: Namespace) -> tuple[str, int]:
    """Address and port at which the nodes meet."""
    if arguments.rdzv_endpoint:
        address, port = parse_rendezvous_endpoint(arguments.rdzv_endpoint, default_port=arguments.master_port or 0)
        return str(address), int(port)
    return str(arguments.master_addr), int(arguments.master_port or 0)


def run(arguments: Namespace, watch: RankWatch, log_dir: Path) -> list[RankFailure]:
    """Start the ranks and wait for all of them; the failures in the order in which they happened, empty for success.

    `watch` must be open; it is stopped before its times are read. When a rank fails, torchrun ends the others.
    Raises TorchrunError when the ranks could not be started at all.
    """
    group = own_group()
    kills_before = group.kills() if group else 0
    try:
        torchrun.run(arguments)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        watch.stop()
        failures = ordered([_seen(rank, failure, watch.ended_ms, log_dir) for rank, failure in error.failures.items()])
        return failures if group is None else explained(failures, group, group.kills() - kills_before)
    except Exception as error:
        raise TorchrunError(f"torchrun could not run the ranks: {type(error).__name__}: {error}") from error
    return []


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenFailure:
    """A failure with what orders it: when the process was seen to end (epoch ms), and whether it recorded its error."""

    failure: RankFailure
    ended_ms: int
    recorded: bool


def ordered(seen: Sequence[SeenFailure]) -> list[RankFailure]:
    """The cause first: by time, but effects (a lost peer, a rank that torchrun ended) after everything else.

    A rank that dies without a word is seen to end up to WATCH_LATENESS_MS late, while its peers record their errors at
    once; so if it ended before any of them did, it comes first, and its time is at the latest theirs. torchrun ends
    ranks only after a failure: the first one is never `stopped`.
    """
    first_recorded_end = min((each.ended_ms for each in seen if each.recorded), default=0)

    def key(each: SeenFailure) -> tuple[bool, int, bool]:
        is_sudden = not each.recorded and each.ended_ms < first_recorded_end
        is_effect = each.failure.lost_peer or (each.failure.stopped and not is_sudden)
        time_ms = each.failure.time_ms - (WATCH_LATENESS_MS if is_sudden else 0)
        return is_effect, time_ms, each.failure.stopped

    failures = [each.failure for each in sorted(seen, key=key)]
    first_ms = min(failure.time_ms for failure in failures)
    return [failures[0].model_copy(update={"stopped": False, "time_ms": first_ms}), *failures[1:]]


def explained(failures: Sequence[RankFailure], group: MemoryGroup, kills: int) -> list[RankFailure]:
    """The failures, where the first is a SIGKILL and the kernel ended `kills` processes meanwhile, with that reason."""
    first, *others = failures
    if kills == 0 or first.signal != signal.SIGKILL.name:
        return list(failures)
    limit = group.limit()
    bound = "" if limit is None else f" (limit: {limit} bytes)"
    message = f"out of memory{bound}: the kernel ended it; {first.message}"
    return [first.model_copy(update={"message": message}), *others]


def _seen(rank: int, failure: ProcessFailure, ended: Mapping[int, int], log_dir: Path) -> SeenFailure:
    signal_number = max(0, -failure.exitcode)
    exit_code = max(0, failure.exitcode)
    ended_ms = time_ms = ended.get(failure.pid, failure.timestamp * 1000)
    how = f"was ended by {signal_name(signal_number)}" if signal_number else f"left with exit code {exit_code}"
    message = f"rank {rank} {how}; its output is in {log_dir / log_name(rank)}"
    recorded = failure.error_file_data.get("message")
    if isinstance(recorded, dict):
        extra = recorded["extraInfo"]
        message = extra["py_callstack"]
        time_ms = extra.get("time_ms", time_ms)  # torchrun's own error handler records whole seconds only
        if signal_number in _STOP_SIGNALS:
            # It had failed by itself and was still leaving when torchrun ended it.
            signal_number, exit_code = 0, extra.get("exit_code", 1)
    record = RankFailure(
        rank=rank,
        local_rank=failure.local_rank,
        pid=failure.pid,
        exit_code=None if signal_number else exit_code,
        signal=signal_name(signal_number) if signal_number else None,
        time_ms=time_ms,
        message=message,
        stopped=signal_number in _STOP_SIGNALS,
        lost_peer=isinstance(recorded, dict) and any(phrase in message.lower() for phrase in _LOST_PEER),
    )
    return SeenFailure(failure=record, ended_ms=ended_ms, recorded=isinstance(recorded, dict))
