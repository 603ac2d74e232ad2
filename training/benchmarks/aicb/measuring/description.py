"""Turns a record of measurements into AICB's description file, our JSON, rows of the database, and what is printed."""

import json
from collections.abc import Iterator
from typing import Any

from training.benchmarks.aicb.measuring.job import AiobJob
from training.benchmarks.aicb.measuring.parts import LayerShapes, Part, op_shape, parts_of
from training.benchmarks.aicb.measuring.statistics import Samples, total
from workloads.compute.aiob import COMMON, CORE, DEEPSEEK, FLASH
from workloads.compute.aiob_json import FORMAT, VERSION
from workloads.compute.measurement import ComputeTime
from workloads.compute.operators import OPERATORS, shape_text

AGREEMENT = 0.10
"""How far the sum of the parts may be from the whole layer."""
ORDER = ("Emb", "layernorm", "atten_qkv", *DEEPSEEK, *FLASH, *CORE, "atten_linear", *COMMON[2:])
FILLED = {"linear": "torch linear", "adam": "torch Adam"}


class Measured:
    """The record of one job with its parts."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.job = AiobJob.from_dict(record["job"])
        kernels = {kind: found["used"] for kind, found in record["kernels"].items()}
        self.kernels: dict[str, str] = kernels
        self.parts: list[Part] = parts_of(self.job.args, fused=kernels["attention"] != "unfused")

    def samples(self, direction: str, part: Part) -> Samples | None:
        """The times of a part; direction: "forward" or "backward". None where there is no such pass."""
        found = next(each for each in self.record["parts"] if each["name"] == part.name)[direction]
        return None if found is None else Samples(**found)

    def sections(self) -> dict[str, Samples]:
        """The times of the forward pass by AICB's section, in its order."""
        by_section: dict[str, list[Samples]] = {}
        for part in self.parts:
            found = self.samples("forward", part)
            assert found is not None
            by_section.setdefault(part.section, []).append(found)
        if LayerShapes(self.job.args).latent:
            # AICB's reader wants the section also where queries have no narrow projection.
            by_section.setdefault(DEEPSEEK[0], [])
        return {name: total(by_section[name]) for name in ORDER if name in by_section}

    def description(self) -> str:
        """AICB's description file; times in microseconds."""
        lines = [f"train_iter:{self.job.iterations}"]
        for name, samples in self.sections().items():
            lines.append(f"{name}:")
            for statistic, value in (("max", samples.maximum), ("min", samples.minimum), ("avg", samples.average)):
                lines.append(f"    time_gpu_{statistic}: {value / 1000:.3f}")
        return "\n".join(lines) + "\n"

    def layer(self) -> dict[str, Any]:
        """The whole layer beside the sum of its parts, medians in ns. agrees: both passes together within AGREEMENT."""
        found: dict[str, Any] = {}
        whole = parts = 0.0
        for direction in ("forward", "backward"):
            samples = [self.samples(direction, part) for part in self.parts if part.layer]
            summed = sum(each.p50 for each in samples if each is not None)
            measured = Samples(**self.record["layer"][direction])
            whole, parts = whole + measured.p50, parts + summed
            found[direction] = {**measured.to_dict(), "sum_of_parts": summed}
        return {**found, "whole_ns": whole, "parts_ns": parts, "agrees": abs(parts / whole - 1) <= AGREEMENT}

    def unsettled(self) -> list[str]:
        """Names of what did not settle before it was measured."""
        found = [
            f"{part.name} {direction}"
            for part in self.parts
            for direction in ("forward", "backward")
            if (samples := self.samples(direction, part)) is not None and not samples.settled
        ]
        found += [f"layer {way}" for way in ("forward", "backward") if not self.record["layer"][way]["settled"]]
        return found + [f"{each['op']} {_sizes(each)}" for each in self.record["gemms"] if not each["settled"]]

    def notes(self) -> list[str]:
        """The notes for a reader of the numbers."""
        notes = list(self.record["notes"])
        layer = self.layer()
        if not layer["agrees"]:
            share = layer["parts_ns"] / layer["whole_ns"]
            notes.append(
                f"the parts add up to {share:.0%} of the whole layer's time, more than {AGREEMENT:.0%} apart: the "
                "times of single parts say little here"
            )
        unsettled = self.unsettled()
        if unsettled:
            shown = ", ".join(unsettled[:5]) + (f" and {len(unsettled) - 5} more" if len(unsettled) > 5 else "")
            notes.append(
                f"{len(unsettled)} did not settle within {self.job.warm_up} calls or {self.job.seconds:g} s: {shown}; "
                "no database gets their times"
            )
        optimizer = next(each for each in self.record["parts"] if each["kind"] == "adam")
        if optimizer["measured_elements"] < optimizer["sizes"]["elements"]:
            notes.append(
                f"the optimizer was measured on {optimizer['measured_elements']} of {optimizer['sizes']['elements']} "
                "elements and scaled up"
            )
        return notes

    def to_json(self) -> str:
        """Everything: parts forward and backward, a time for each product of a workload, the layer, the device."""
        sections = {name: samples.to_dict() for name, samples in self.sections().items()}
        whole = {
            "format": FORMAT, "version": VERSION, "unit": "ns", **self.record, "sections": sections,
            "layer": self.layer(), "notes": self.notes(),
        }  # fmt: skip
        return json.dumps(whole, indent=1) + "\n"

    def times(self) -> Iterator[ComputeTime]:
        """Rows for the database of compute times, of what settled."""
        for each in self.record["gemms"]:
            found = {name: each[name] for name in Samples.__slots__}
            if not each["settled"]:
                continue
            yield self._time(each["op"], {axis: each[axis] for axis in ("m", "k", "n")}, "torch.mm", Samples(**found))
        for part in self.parts:
            shape = op_shape(part)
            if shape is None or part.op is None:
                continue
            for op, direction in ((part.op, "forward"), (f"{part.op}_backward", "backward")):
                samples = self.samples(direction, part)
                if samples is not None and samples.settled and op in OPERATORS:
                    yield self._time(op, shape, self._kernel(part), samples)

    def _kernel(self, part: Part) -> str:
        kind = {"core": "attention"}.get(part.kind, part.kind)
        return self.kernels.get(kind) or FILLED.get(part.kind, "torch")

    def _time(self, op: str, shape: dict[str, int], kernel: str, samples: Samples) -> ComputeTime:
        device = self.record["device"]
        dtype = "fp32" if op == "adam" else self.job.precision
        threads = f", {device['threads']} threads" if "threads" in device else ""
        source = f"aicb aiob, {self.record['began']} UTC"
        values = (device["name"], op, shape_text(op, shape), dtype, kernel, device["versions"] + threads,
                  samples.average, samples.half_range, samples.count, source)  # fmt: skip
        return ComputeTime.of(values)

    def table(self) -> Iterator[str]:
        """Lines for the console, in microseconds."""
        device = self.record["device"]
        yield f"{device['name']}, {device['versions']}, {self.job.precision}"
        yield "kernels: " + ", ".join(f"{kind} {used}" for kind, used in self.kernels.items())
        yield f"{'us':<22} {'forward':>34}   {'backward':>34}"
        head = f"{'min':>8} {'avg':>8} {'p50':>8} {'max':>8}"
        yield f"{'':<22} {head}   {head}"
        for part in self.parts:
            yield f"{part.name:<22} {_cells(self.samples('forward', part))}   {_cells(self.samples('backward', part))}"
        layer = self.layer()
        cells = [_cells(Samples(**self.record["layer"][way])) for way in ("forward", "backward")]
        yield f"{'whole layer':<22} {cells[0]}   {cells[1]}"
        sums = [f"{layer[way]['sum_of_parts'] / 1000:>26.1f}{'':>9}" for way in ("forward", "backward")]
        yield f"{'sum of its parts':<22} {sums[0]}  {sums[1]}".rstrip()


def _cells(samples: Samples | None) -> str:
    if samples is None:
        return " " * 35
    values = (samples.minimum, samples.average, samples.p50, samples.maximum)
    return " ".join(f"{value / 1000:>8.1f}" for value in values)


def _sizes(gemm: dict[str, Any]) -> str:
    return f"{gemm['m']}x{gemm['k']}x{gemm['n']}"
