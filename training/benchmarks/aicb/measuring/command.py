"""The verb `aiob`: checks the parameters, measures in a process of its own, writes what was measured."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vendors
from common.errors import MistakeList, SimulationError, stated
from common.shortening import few
from common.summary import JsonValue, Summary
from common.whole_files import refuse_present, refuse_stdout, whole_set, write_whole
from training.benchmarks.aicb.measuring.job import PRECISIONS, AiobJob
from training.benchmarks.aicb.measuring.parts import LayerShapes, Part, op_shape, parts_of
from training.benchmarks.aicb.measuring.statistics import Samples, total
from workloads import options
from workloads.compute import database
from workloads.compute.aiob import COMMON, CORE, DEEPSEEK, FLASH
from workloads.compute.aiob_json import FORMAT, VERSION
from workloads.compute.measurement import ComputeTime
from workloads.compute.operators import OPERATORS, shape_text
from workloads.dialects.framework.widths import latent, widths
from workloads.job import rules
from workloads.job.errors import AicbError
from workloads.job.parameters import TRAINING, WorkloadArgs

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
            shown = few(unsettled, 5)
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
        """Everything: parts forward and backward, a time for each product of a workload, the layer, the device, and the
        rows for a database.
        """
        sections = {name: samples.to_dict() for name, samples in self.sections().items()}
        whole = {
            "format": FORMAT, "version": VERSION, "unit": "ns", **self.record, "sections": sections,
            "layer": self.layer(), "notes": self.notes(), "times": [list(row.values()) for row in self.times()],
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


ROOT = Path(__file__).resolve().parents[4]
WORKER = "training.benchmarks.aicb.measuring.worker"


def run(arguments: argparse.Namespace) -> Summary:
    """Measure the layer of the parameters, and write what was measured.

    Raises:
        InputProblems: the parameters have no such layer, or a file is in the way.
        SimulationError: it cannot be measured here.
    """
    given = vars(arguments)
    output, into, dialect = given.pop("output"), given.pop("database"), given.pop("dialect")
    own = {name: given.pop(name) for name in ("precision", "device", "attention", "iterations", "warm_up", "seconds")}
    own["threads"] = given.pop("threads")
    args = options.described(given, "csv", dialect)
    own["precision"] = own["precision"] or next((each for each, name in PRECISIONS.items() if name == args.dtype), None)
    mistakes = MistakeList()
    refuse_stdout(output, "FILE.json stands beside it", mistakes)
    mistakes.mistakes += stated(problems(args, own))
    if into is not None and into.exists():
        with mistakes.noted():
            database.load(into)
    mistakes.check()
    beside = output.with_name(f"{output.name}.json")
    refuse_present((output, beside))
    measured = Measured(measure([AiobJob(args=args, **own)])[0])
    with whole_set():
        write_whole(output, [measured.description().encode()])
        write_whole(beside, [measured.to_json().encode()])
    lines = [*measured.table(), f"wrote {output}: {len(measured.sections())} sections, and {beside}"]
    if into is not None:
        lines.append(f"wrote {into}: {database.add(into, measured.times())} rows")
    for note in measured.notes():
        print(f"note: {note}", file=sys.stderr)
    data: dict[str, JsonValue] = {
        "file": str(output),
        "sections": len(measured.sections()),
        "lines": lines,
        "job": args.to_dict(),
    }
    return Summary("\n".join(lines), data)


def _device_problems(device: str) -> list[str]:
    kinds = sorted({vendor.device_type for vendor in vendors.working()} - {"cpu"})
    kind, colon, number = device.partition(":")
    if device in ("auto", "cpu") or (kind in kinds and (number.isdigit() or not colon)):
        return []
    return [f"device is {device!r}; allowed: auto, cpu, {', '.join(f'{each}, {each}:N' for each in kinds)}"]


def problems(args: WorkloadArgs, own: dict[str, Any]) -> list[str]:
    """Every reason why the parameters describe no layer that can be measured."""
    found = [problem.text for problem in rules.check(args)]
    for name, low in (("iterations", 1), ("warm_up", 0), ("seconds", 0), ("threads", 1)):
        if own[name] is not None and not low <= own[name] < 1e6:
            found.append(f"{name} is {own[name]}; it must be from {low} to 999999")
    found += _device_problems(own["device"])
    if own["precision"] is None:
        found.append(f"dtype is {args.dtype!r}; allowed: {', '.join(PRECISIONS.values())}")
    if args.frame == "collective_test":
        return [*found, "frame collective_test has no layer to measure"]
    if args.context_parallel_size > 1:
        found.append("context_parallel_size: attention over several ranks is no kernel of one; nearest: 1")
    if args.phase != TRAINING:
        found.append(f"phase is {args.phase!r}: the layer of a training step is measured; nearest: {TRAINING}")
    if rules.blocked(args):
        return found
    found += latent(args) if LayerShapes(args).latent else widths(args)
    return found + (_experts(args) if args.moe_enable else [])


def _experts(args: WorkloadArgs) -> list[str]:
    shapes = LayerShapes(args)
    whole = args.ffn_size if args.frame == "DeepSeek" else args.expert_size
    found = []
    if args.num_experts < 1 or args.num_experts % args.expert_model_parallel_size:
        found.append(
            f"num_experts {args.num_experts} must be a multiple of expert_model_parallel_size "
            f"{args.expert_model_parallel_size}"
        )
    if not 1 <= args.moe_router_topk <= max(1, args.num_experts):
        found.append(f"moe_router_topk {args.moe_router_topk} must be from 1 to num_experts {args.num_experts}")
    if shapes.expert_tp < 1 or whole % shapes.expert_tp:
        found.append(
            f"the width of an expert {whole} must be a multiple of its tensor-parallel size {shapes.expert_tp}"
        )
    return found


def measure(jobs: list[AiobJob], python: str = sys.executable) -> list[dict[str, Any]]:
    """The records of jobs, which one process measures one after another.

    Raises:
        AicbError: a job cannot be measured.
        SimulationError: torch is missing, or the process dies.
    """
    lines = "".join(f"{json.dumps(job.to_dict())}\n" for job in jobs)
    command = [python, "-m", WORKER]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, check=False)
    records: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    errors = list(dict.fromkeys(record["error"] for record in records if "error" in record))
    if errors:
        raise AicbError("\n".join(errors))
    if done.returncode or len(records) != len(jobs):
        if "No module named 'torch'" in done.stderr:
            raise SimulationError(
                "aiob needs torch, which this Python does not have: pip install -r requirements/workload.txt"
            )
        raise SimulationError(f"the measuring process ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return records
