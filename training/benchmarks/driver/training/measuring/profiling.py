"""Profiles chosen steps of chosen ranks: seconds by phase, or a trace of torch.profiler with a memory snapshot."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, record_function

from training.benchmarks.driver.launch.rank import LOG_FOLDER_ENV
from training.benchmarks.driver.training.settings.settings import PHASES, TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import TimedEvent, elapsed_ns, timed_event

Interval = tuple[float, float]

_MEMORY_EVENTS = 100_000  # of a memory snapshot: the last ones
_NOTHING = contextlib.nullcontext()
_COPIES = ("Memcpy", "Memset")


class Profiling:
    """The profile of one rank. `steps` are slower than others on every rank, whichever ranks are profiled."""

    def __init__(self, config: TrainingConfig, *, rank: int, device: torch.device) -> None:
        self._kind = config.profile
        self._is_chosen = self._kind is not None and rank in config.profiled_ranks()
        self.steps = frozenset(config.profiled_steps()) if self._kind is not None else frozenset()
        self._rank = rank
        self._device = device
        self._devices = accelerators(device) if is_accelerator(device) else None
        self._profiler: profile | None = None
        self._first = self._last = 0
        self._marks: list[tuple[str, Any, Any]] = []
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._profiled = 0
        self.files: list[str] = []

    def begin(self, step: int) -> None:
        """Begin to profile `step`, one of `steps`, if this rank is chosen; successive steps share a trace."""
        if not self._is_chosen:
            return
        if self._profiler is None:
            self._start(step)
        self._last = step
        self._profiled += 1

    def end(self, step: int) -> None:
        """End the profile of `step`."""
        if step + 1 not in self.steps:
            self.close()

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Time what is inside, one of PHASES, in a step that is profiled."""
        return _NOTHING if self._profiler is None else self._timed(name)

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        with record_function(name):
            begin = self._now(name)
            yield
            self._marks.append((name, begin, self._now(name)))

    def close(self) -> None:
        """End a trace that is open, as it is after the last chosen step and at the end of the run."""
        if self._profiler is None:
            return
        if self._devices is not None:
            self._devices.synchronize(self._device)
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        if self._kind == "trace":
            self._keep(profiler)
        else:
            self._count(profiler)

    def phases(self) -> dict[str, float | None]:
        """Mean seconds per profiled step of each phase, `phase_<name>`; None where no phases were measured.

        Waiting for communication is contained in the phase that waits.
        """
        known = self._kind == "phases" and self._profiled > 0
        return {f"phase_{name}": seconds / self._profiled if known else None for name, seconds in self._seconds.items()}

    def _start(self, step: int) -> None:
        self._first = step
        activities = [ProfilerActivity.CPU, *([] if self._devices is None else [self._devices.activity()])]
        is_trace = self._kind == "trace"
        self._profiler = profile(activities=activities, record_shapes=is_trace, profile_memory=is_trace)
        if is_trace and self._devices is not None:
            self._devices.remember_memory(_MEMORY_EVENTS)
        self._profiler.start()

    def _keep(self, profiler: profile) -> None:
        folder = Path(os.environ.get(LOG_FOLDER_ENV, "."))
        name = f"rank{self._rank}.steps{self._first}-{self._last}"
        trace = f"trace.{name}.json.gz"
        profiler.export_chrome_trace(str(folder / trace))
        self.files.append(trace)
        snapshot = f"memory.{name}.pickle"
        if self._devices is not None and self._devices.dump_memory(str(folder / snapshot)):
            self._devices.remember_memory(None)
            self.files.append(snapshot)

    def _count(self, profiler: profile) -> None:
        for name, begin, end in self._marks:
            self._seconds[name] += end - begin if isinstance(end, float) else elapsed_ns(begin, end) / 1e9
        self._marks.clear()
        names = () if self._devices is None else self._devices.library_kernels
        self._seconds["exposed_communication"] += exposed_seconds(profiler.events() or (), names)  # type: ignore[no-untyped-call]

    def _now(self, name: str) -> "float | TimedEvent":
        """This moment: of the device, but of the host for the data, which the host waits for."""
        if self._devices is None or name == "data":
            return time.perf_counter()
        event = timed_event(self._device)
        event.record()
        return event


def exposed_seconds(events: Iterable[Any], library_kernels: tuple[str, ...]) -> float:
    """Seconds in which communication runs and no computation of this rank does.

    `events` are torch.profiler's. On an accelerator both are kernels (of communication those with one of
    `library_kernels` in their lower-case names), without copies of memory; on the CPU communication is
    Gloo's, and computation are torch's operators in any thread.

    Source: Holistic Trace Analysis, "Communication computation overlap" (its share that is not overlapped).
    """

    def is_talk(event: Any) -> bool:
        return any(name in event.name.lower() for name in library_kernels)

    on_device = [event for event in events if not event.is_user_annotation or event.name.startswith("gloo:")]
    kernels = [event for event in on_device if event.device_type is not DeviceType.CPU]
    if kernels:
        talk: Iterable[Any] = filter(is_talk, kernels)
        work = (event for event in kernels if not is_talk(event) and not event.name.startswith(_COPIES))
    else:
        talk = (event for event in on_device if event.name.startswith("gloo:"))
        work = (event for event in on_device if event.name.startswith("aten::"))
    return _difference(_merged(talk), _merged(work)) / 1e6


def _merged(events: Iterable[Any]) -> list[Interval]:
    """The times of the events, in microseconds, as intervals that neither touch nor overlap, in order."""
    found: list[Interval] = []
    for begin, end in sorted((float(event.time_range.start), float(event.time_range.end)) for event in events):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _difference(of: list[Interval], without: list[Interval]) -> float:
    """Total length of `of` outside `without`, in their unit of time; both are merged."""
    total, position = 0.0, 0
    for begin, end in of:
        while position < len(without) and without[position][1] <= begin:
            position += 1
        here, number = begin, position
        while number < len(without) and without[number][0] < end:
            total += max(without[number][0] - here, 0.0)
            here = max(here, without[number][1])
            number += 1
        total += max(end - here, 0.0)
    return total
