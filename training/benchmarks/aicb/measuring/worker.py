"""Measures jobs one after another: a line of JSON each on stdin, a record each on stdout.

A job that cannot be measured answers {"error": text}. All jobs share one process, so that torch is imported once.
"""

import gc
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch

import vendors
from training.benchmarks.aicb.measuring.clock import Clock, ClockLimits
from training.benchmarks.aicb.measuring.job import PRECISIONS, AiobJob
from training.benchmarks.aicb.measuring.layer import OnePart, WholeLayer
from training.benchmarks.aicb.measuring.modules import APEX, GROUPED_MM, TRANSFORMER_ENGINE, Setting
from training.benchmarks.aicb.measuring.parts import UNFUSED, LayerShapes, Part, memory_bytes, parts_of
from training.benchmarks.aicb.measuring.statistics import Samples
from training.benchmarks.driver.training.model.kernels import (
    Choice,
    Libraries,
    against_flash_attention,
    against_library,
    first_usable,
)
from training.benchmarks.driver.training.settings.settings import AUTO, FLASH_ATTENTION
from training.benchmarks.driver.workload.accelerator import accelerators, device_name, is_accelerator, vendor_here
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.processor import cpu_name
from workloads.dialects.generation import generate
from workloads.job.errors import ParameterError
from workloads.job.parameters import WorkloadArgs
from workloads.rows.ops import INPUT_GRADIENT, WEIGHT_GRADIENT, Gemm, gemms_of

SDPA, TORCH, BATCHED = "sdpa", "torch", "bmm"
ATTENTIONS = (TRANSFORMER_ENGINE, FLASH_ATTENTION, SDPA, UNFUSED)


def choose(args: WorkloadArgs, precision: str, attention: str, libraries: Libraries) -> dict[str, Choice]:
    """The kernel of each kind on this device. attention: one of ATTENTIONS or "auto"; precision: bf16, fp16 or fp32.

    Raises:
        UnusableSettingsError: the attention that is asked for cannot be used here.
    """
    query, value = LayerShapes(args).head_sizes

    def flash() -> str | None:
        if query != value:
            return f"needs values of the queries' size {query}, found {value}"
        return against_flash_attention(query, precision, libraries)

    def engine() -> str | None:
        return libraries.against("transformer_engine") or against_library(TRANSFORMER_ENGINE, libraries)

    def apex() -> str | None:
        return libraries.against("apex") or against_library(APEX, libraries)

    def grouped() -> str | None:
        if precision != "bf16":
            return f"needs bf16, found {precision}"
        return libraries.against("grouped_mm")

    obstacles = {TRANSFORMER_ENGINE: engine, FLASH_ATTENTION: flash, APEX: apex, GROUPED_MM: grouped}
    return {
        "attention": first_usable("attention", attention, ATTENTIONS, obstacles),
        "norm": first_usable("norm", AUTO, (TRANSFORMER_ENGINE, APEX, TORCH), obstacles),
        "experts": first_usable("experts", AUTO, (GROUPED_MM, BATCHED), obstacles),
        # As the trainer ranks them: torch's own fused Adam is one kernel for many tensors.
        "optimizer": first_usable("optimizer", AUTO, ("fused",), obstacles),
    }


OPTIMIZER_ELEMENTS, OPTIMIZER_ELEMENTS_OF_A_CPU = 1 << 26, 1 << 20
"""Largest number of parameters that Adam is measured on; more take longer in proportion, for it is bound by memory."""
OPTIMIZER_TENSORS = 8
EATEN = 0.9
"""Share of the free memory that measuring may take."""


def main() -> None:
    """Measure every job of stdin."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(answers, "w") as output:
        for line in sys.stdin:
            try:
                record = measured(AiobJob.from_dict(json.loads(line)))
            except (UnusableSettingsError, torch.OutOfMemoryError) as error:
                record = {"error": f"{type(error).__name__}: {error}"}
            output.write(f"{json.dumps(record)}\n")
            output.flush()


def measured(job: AiobJob) -> dict[str, Any]:
    """The record of a job; all times are in ns.

    Raises:
        UnusableSettingsError: the device or a kernel cannot be used, or the memory is too small.
    """
    device = _device(job.device)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    libraries = Libraries(device)
    chosen = choose(job.args, job.precision, job.attention, libraries)
    dtype: torch.dtype = getattr(torch, PRECISIONS[job.precision])
    setting = Setting(job.args, device, dtype, {kind: choice.used for kind, choice in chosen.items()})
    parts = parts_of(job.args, fused=setting.kernels["attention"] != UNFUSED)
    _check_memory(parts, dtype, device)
    clock = Clock(device, ClockLimits(job.iterations, job.warm_up, job.seconds))
    torch.manual_seed(0)
    products, note = _gemms(job)
    return {
        "job": job.to_dict(),
        "device": _facts(device),
        "kernels": {kind: {"used": choice.used, "why": choice.why} for kind, choice in chosen.items()},
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "parts": [_part(part, setting, clock) for part in parts],
        "layer": _layer(parts, setting, clock),
        "gemms": [_gemm(each, setting, clock) for each in products],
        "ended": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "notes": [note] if note else [],
    }


def _device(name: str) -> torch.device:
    if name == "auto":
        name = vendors.load(vendor_here()).device_type
    device = torch.device(name)
    if is_accelerator(device):
        device = torch.device(device.type, device.index or 0)  # torch.cuda takes none without its number
        devices = accelerators(device)
        if device.index >= devices.count():
            seen = f"torch {torch.__version__} sees {devices.count()} of this type"
            raise UnusableSettingsError(f"device {name!r}: {seen}")
        # Events are of the current device.
        devices.take(device)
    return device


def _facts(device: torch.device) -> dict[str, Any]:
    versions = f"torch {torch.__version__}"
    if is_accelerator(device):
        libraries = "".join(f", {name} {version}" for name, version in accelerators(device).versions().items())
        return {"type": device.type, "name": device_name(device), "versions": versions + libraries}
    return {
        "type": "cpu",
        "name": cpu_name(Path("/proc/cpuinfo")),
        "versions": versions,
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0],
    }


def _check_memory(parts: list[Part], dtype: torch.dtype, device: torch.device) -> None:
    needed = memory_bytes(parts, dtype.itemsize)
    on_device = is_accelerator(device)
    free = accelerators(device).free_memory(device) if on_device else int(psutil.virtual_memory().available)
    if needed > EATEN * free:
        raise UnusableSettingsError(
            f"one layer of this rank needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on {device}; "
            "more tensor-parallel ranks, a shorter seq_length or a smaller micro_batch need less"
        )


def _part(part: Part, to: Setting, clock: Clock) -> dict[str, Any]:
    record: dict[str, Any] = {"name": part.name, "kind": part.kind, "section": part.section, "sizes": part.sizes}
    if part.kind == "adam":
        forward, used = _optimizer(part.sizes["elements"], to, clock)
        record |= {"forward": forward.to_dict(), "backward": None, "measured_elements": used}
    else:
        one = OnePart(part, to)
        record["forward"] = clock.measure(one.forward).to_dict()
        backward = clock.measure(one.backward, before=one.prepare_backward)
        record["backward"] = backward.to_dict()
    record["sensors"] = clock.sensed
    _free(to)
    return record


def _layer(parts: list[Part], to: Setting, clock: Clock) -> dict[str, Any]:
    layer = WholeLayer(parts, to)
    forward = clock.measure(layer.forward)
    backward = clock.measure(layer.backward, before=layer.prepare_backward)
    found = {"forward": forward.to_dict(), "backward": backward.to_dict(), "sensors": clock.sensed}
    del layer
    _free(to)
    return found


def _optimizer(elements: int, to: Setting, clock: Clock) -> tuple[Samples, int]:
    """Adam's step on 32-bit parameters, and how many of them were measured; the time is that of all `elements`."""
    most = OPTIMIZER_ELEMENTS if is_accelerator(to.device) else OPTIMIZER_ELEMENTS_OF_A_CPU
    used = min(elements, most)
    count = min(OPTIMIZER_TENSORS, used)
    tensors = [torch.zeros(used // count, device=to.device, requires_grad=True) for _ in range(count)]
    for each in tensors:
        each.grad = torch.full_like(each, 1e-3)
    optimizer = torch.optim.Adam(tensors, lr=1e-4, fused=to.kernels["optimizer"] == "fused")
    used = sum(each.numel() for each in tensors)
    return clock.measure(optimizer.step).scaled(elements / used), used


def _gemms(job: AiobJob) -> tuple[list[Gemm], str | None]:
    """The products of the workload's rows, and why there are none."""
    args = replace(job.args, computation_enable=True, aiob_enable=False, comp_filepath=None, dtype="bfloat16")
    try:
        rows = generate(args, dialect="aicb", break_rules=True).rows
    except ParameterError as error:
        return [], f"no times for the rows of a workload: {error.problems[0]}"
    return gemms_of(rows.tally()), None


def _gemm(gemm: Gemm, to: Setting, clock: Clock) -> dict[str, Any]:
    m, k, n = gemm.m, gemm.k, gemm.n
    # As they lie in memory in the passes of a linear layer with the weight (outputs, inputs).
    first = to.random(k, m, grad=False).t() if gemm.op == WEIGHT_GRADIENT else to.random(m, k, grad=False)
    plain = gemm.op in (INPUT_GRADIENT, WEIGHT_GRADIENT)
    second = to.random(k, n, grad=False) if plain else to.random(n, k, grad=False).t()
    out = torch.empty(m, n, device=to.device, dtype=to.dtype)
    times = clock.measure(lambda: torch.mm(first, second, out=out))
    return {"op": gemm.op, "m": m, "k": k, "n": n, **times.to_dict(), "sensors": clock.sensed}


def _free(to: Setting) -> None:
    if is_accelerator(to.device):
        gc.collect()
        accelerators(to.device).give_back()


if __name__ == "__main__":
    main()
