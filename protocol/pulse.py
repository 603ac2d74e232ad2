"""Reports a rank's progress to its launcher: its start, its counts every two seconds, and its exit.

A log line proves no progress: a thread may print while the rank hangs. These counts do. They need no torch; if
torch is loaded, they include the collectives that each process group has begun, and if torch's flight recorder is on
(TORCH_FR_BUFFER_SIZE, or TORCH_NCCL_TRACE_BUFFER_SIZE for NCCL alone), the collectives that have not ended.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

SOCKET_ENV = "CLUSTERDYNO_RANK_SOCKET"
PULSE_SECONDS = 2.0
SEND_SECONDS = 1.0  # limit of the delay that a frozen launcher causes to a rank that starts or exits
MAX_GROUPS = 64  # whose counts are sent, so that a message stays short
MAX_IN_FLIGHT = 4
MAX_WORD = 200
_C10D = "torch.distributed.distributed_c10d"
_RECORDER = "torch._C._distributed_c10d"
_RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_WAITING_FILES = tuple(f"torch/distributed/{name}.py" for name in ("distributed_c10d", "c10d_logger", "rendezvous"))
_BACKENDS = ("/gloo/", "ncclSystemError", "ncclRemoteError", "ncclInternalError")  # what their errors begin with
_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")


class _Progress:
    """Progress of this process; its own threads write, the pulse reads."""

    def __init__(self) -> None:
        self.events = 0
        self.last_event: str | None = None
        self.is_training = False
        self.steps = 0
        self.has_left = False
        self.describe: Callable[[str | None], str | None] | None = None


_PROGRESS = _Progress()


def note_event(name: str) -> None:
    """Count a PerfLog record of this event."""
    _PROGRESS.events += 1
    _PROGRESS.last_event = name
    if name in ("TRAIN_START", "TRAIN_END"):
        _PROGRESS.is_training = name == "TRAIN_START"
        send({"what": name}, patience_s=0)


def step() -> None:
    """Count a step of the workload: for loops that neither log nor communicate for longer than a stall limit."""
    _PROGRESS.steps += 1


def describe(words: Callable[[str | None], str | None] | None) -> None:
    """Ask `words` from now on where this process waits, in its own terms; None: no longer.

    It gets the function of torch.distributed that the main thread is in, None if it is in none, and answers where the
    process waits, None if it does not. The pulse's thread calls it.
    """
    _PROGRESS.describe = words


def begin(rank: int) -> None:
    """Announce this process to the launcher, and keep reporting; does nothing if no launcher listens."""
    if not os.environ.get(SOCKET_ENV):
        return
    send({"what": "here", "rank": rank}, patience_s=SEND_SECONDS)
    threading.Thread(target=_beat, name="pulse", daemon=True).start()


def leave(exit_code: int) -> None:
    """Report to the launcher that this rank exits by itself, before its peers notice; only the first call counts."""
    if not _PROGRESS.has_left:
        _PROGRESS.has_left = True
        at_us = time.time_ns() // 1000
        send({"what": "leaves", "at_us": at_us, "exit_code": exit_code, **_counts()}, patience_s=SEND_SECONDS)


def exit_code_of(error: BaseException | None) -> int:
    """The exit code with which Python exits for this exception; 0 for None."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1


def send(word: Mapping[str, Any], patience_s: float) -> None:
    """Send one message of this process to the launcher, if one listens, waiting at most `patience_s` seconds."""
    path = os.environ.get(SOCKET_ENV)
    if path:
        with contextlib.suppress(OSError):
            send_to(Path(path), json.dumps({"pid": os.getpid(), **word}).encode(), patience_s)


def send_to(path: Path, message: bytes, patience_s: float | None = None) -> None:
    """Send a datagram to the socket at that path, waiting at most `patience_s` seconds (None: without a limit).

    Raises:
        OSError: nobody takes the datagram in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(patience_s)
        sender.sendto(message, str(path))


def _beat() -> None:
    main = threading.main_thread()
    while main.is_alive():
        send({"what": "pulse", "waits_in": _described(main.ident or 0), **_counts()}, patience_s=0)
        time.sleep(PULSE_SECONDS)


def _described(thread: int) -> str | None:
    """Where the main thread waits, in the workload's words where it has some."""
    waits_in = where_it_waits(sys._current_frames().get(thread))
    words = _PROGRESS.describe
    if words is None:
        return waits_in
    try:
        described = words(waits_in)
    except Exception:  # noqa: BLE001 # the workload's own; the pulse must go on
        return waits_in
    return None if described is None else described[:MAX_WORD]


def _counts() -> dict[str, Any]:
    return {
        "events": _PROGRESS.events,
        "last_event": _PROGRESS.last_event,
        "is_training": _PROGRESS.is_training,
        "steps": _PROGRESS.steps,
        "collectives": _collectives(sys.modules.get(_C10D)),
        "in_flight": _in_flight(sys.modules.get(_RECORDER)),
    }


def _collectives(c10d: ModuleType | None) -> dict[str, int]:
    """Number of collectives begun by each process group of this rank, by the group's name, which all ranks share."""
    if c10d is None:
        return {}
    counts = {}
    # The table belongs to torch and to the main thread, which may be opening or closing a group.
    with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError):
        for group in list(c10d._world.pg_map)[:MAX_GROUPS]:
            counts[str(group.group_name)] = int(group._get_sequence_number_for_group())
    return counts


def _in_flight(recorder: ModuleType | None) -> list[str]:
    """The collectives that torch's flight recorder holds as begun and not ended, at most the latest MAX_IN_FLIGHT.

    Such as "gloo:all_reduce 7 of default_pg"; empty if the recorder is off.
    """
    if recorder is None or not any(os.environ.get(name, "0") not in ("", "0") for name in _RECORDER_SIZES):
        return []
    found = []
    with contextlib.suppress(AttributeError, RuntimeError, TypeError, ValueError, KeyError, IndexError):
        recorded = json.loads(recorder._dump_fr_trace_json(includeCollectives=True, onlyActive=True))
        # gloo's entries stay "scheduled" after their end, but are marked retired, as NCCL's are.
        for entry in [each for each in recorded.get("entries", []) if not each["retired"]][-MAX_IN_FLIGHT:]:
            number = int(entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"])
            group = entry["process_group"]
            found.append(f"{entry['profiling_name']} {number} of {group[-1] or group[0]}"[:MAX_WORD])
    return found


def where_it_waits(frame: FrameType | None) -> str | None:
    """The function of torch.distributed that this innermost frame is in, None if it is elsewhere.

    A backward pass that averages gradients counts: torch waits for the peers in it.
    """
    if frame is not None and frame.f_code.co_filename.endswith(_BACKWARD[0]) and frame.f_code.co_name == _BACKWARD[1]:
        return "backward" if _collectives(sys.modules.get(_C10D)) else None
    outermost = None
    while frame is not None and frame.f_code.co_filename.endswith(_WAITING_FILES):
        outermost = outermost if frame.f_code.co_name == "wrapper" else frame.f_code.co_name
        frame = frame.f_back
    return outermost


def is_of_communication(error: BaseException) -> bool:
    """Whether an exception, or the one that led to it, came out of torch.distributed or a collective's backend.

    A rank's own mistake in a call (a ValueError, a TypeError) does not count.
    """
    root, passed = error, {id(error)}
    while (before := root.__cause__ or root.__context__) is not None and id(before) not in passed:
        root = before
        passed.add(id(root))
    dist_error = getattr(sys.modules.get("torch.distributed"), "DistError", None)
    if dist_error is not None and isinstance(root, dist_error):
        return True
    frame, trace = None, root.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
    in_a_call = where_it_waits(frame) is not None or any(text in str(root) for text in _BACKENDS)
    return type(root) is RuntimeError and in_a_call
