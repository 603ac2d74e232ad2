"""Traces ranks, each in a process of its own: jobs as lines of JSON on stdin, recorded traces as lines on stdout.

Frameworks are imported once; each job is a fork, as many at a time as there are processors. A job that fails answers
{"error": text}. The answers come in the order of the jobs.
"""

import ctypes
import importlib.metadata
import json
import logging
import os
import signal
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from workloads.trace import context_parallel, groups, shims
from workloads.trace.job import TraceJob
from workloads.trace.kernels import KernelReader
from workloads.trace.record import Trace
from workloads.trace.recorder import Recorder

MODULES = {"Megatron": "megatron", "FSDP2": "fsdp2", "DeepSpeed": "deepspeed"}
DIE_WITH_PARENT = 1
"""prctl's PR_SET_PDEATHSIG."""
EARLY = {
    "Megatron": ("torch._dynamo",),
    "FSDP2": ("torch._dynamo",),
    "DeepSpeed": ("torch._dynamo", "deepspeed.runtime.zero.muon.original_muon"),
}
"""Modules that each job of a frame imports at its start in about a second of CPU time: here once, before the forks."""
PACKAGES = {"Megatron": ("torch", "megatron-core"), "FSDP2": ("torch",), "DeepSpeed": ("torch", "deepspeed")}


def main() -> None:
    """Trace every job of stdin. SIGTERM, which comes when who asked has ended, leaves neither forks nor a folder."""
    signal.signal(signal.SIGTERM, _leave)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # As many jobs run as there are processors: each has one.
    torch.set_num_threads(1)
    jobs = [TraceJob.from_dict(json.loads(line)) for line in sys.stdin]
    if any(job.frame == "Megatron" for job in jobs):
        shims.before_imports()
    for frame in {job.frame for job in jobs}:
        framework(frame)
        for module in EARLY[frame]:
            with suppress(ImportError):
                import_module(module)
    with tempfile.TemporaryDirectory() as folder, os.fdopen(answers, "w") as output:
        for path in _run_all(jobs, Path(folder)):
            output.write(path.read_text())
            output.flush()


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def framework(frame: str) -> Any:
    """The module that runs a framework, which it imports."""
    return import_module(f"workloads.trace.{MODULES[frame]}")


def _run_all(jobs: list[TraceJob], folder: Path) -> list[Path]:
    paths = [folder / str(number) for number in range(len(jobs))]
    running: set[int] = set()
    for job, path in zip(jobs, paths, strict=True):
        if len(running) >= (os.cpu_count() or 1):
            running.discard(os.wait()[0])
        child = os.fork()
        if child == 0:
            try:
                # Without its parent nobody waits for the answer.
                ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
                path.write_text(answer(job))
            finally:
                os._exit(0)
        running.add(child)
    while running:
        running.discard(os.wait()[0])
    return paths


def answer(job: TraceJob) -> str:
    """The line for a job: its trace, or why there is none."""
    try:
        return f"{traced(job).to_line()}\n"
    except Exception as error:  # noqa: BLE001 # a framework may raise anything; the user sees it
        where = "".join(traceback.format_exc())
        return f"{json.dumps({'error': f'{type(error).__name__}: {error}', 'traceback': where})}\n"


def traced(job: TraceJob) -> Trace:
    """Run the job's rank in this process, which cannot run another one afterwards."""
    os.environ.update(RANK=str(job.rank), WORLD_SIZE=str(job.world_size), LOCAL_RANK="0")
    dist.init_process_group("cpu:fake,meta:fake", store=FakeStore(), rank=job.rank, world_size=job.world_size)
    recorder = Recorder()
    recorder.kernels = KernelReader(job) if job.computation_enable else None
    shims.watch_waits(recorder.waited)
    names: groups.Named = framework(job.frame).trace(job, recorder)
    iterations = tuple(tuple(groups.named(op, names) for op in ops) for ops in recorder.iterations)
    packages = [*PACKAGES[job.frame], *([context_parallel.PACKAGE] if job.context_parallel_size > 1 else [])]
    versions = {package: importlib.metadata.version(package) for package in packages}
    return Trace(job, versions, iterations)


if __name__ == "__main__":
    main()
