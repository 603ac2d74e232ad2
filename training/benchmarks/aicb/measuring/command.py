"""The verb `aiob`: checks the parameters, measures in a process of its own, writes what was measured."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import vendors
from common.summary import JsonValue, Summary
from common.whole_files import refuse_present, whole_set, write_whole
from training.benchmarks.aicb.measuring.description import Measured
from training.benchmarks.aicb.measuring.job import PRECISIONS, AiobJob
from training.benchmarks.aicb.measuring.parts import LayerShapes
from workloads import options
from workloads.compute import database
from workloads.dialects.framework.widths import latent, widths
from workloads.job import rules
from workloads.job.errors import AicbError, ParameterError
from workloads.job.parameters import TRAINING, WorkloadArgs

ROOT = Path(__file__).resolve().parents[4]
WORKER = "training.benchmarks.aicb.measuring.worker"


def run(arguments: argparse.Namespace) -> Summary:
    """Measure the layer of the parameters, and write what was measured.

    Raises:
        AicbError: the parameters have no such layer, or it cannot be measured here.
    """
    given = vars(arguments)
    output, into, dialect = given.pop("output"), given.pop("database"), given.pop("dialect")
    own = {name: given.pop(name) for name in ("precision", "device", "attention", "iterations", "warm_up", "seconds")}
    own["threads"] = given.pop("threads")
    args = options.described(given, "csv", dialect)
    own["precision"] = own["precision"] or next((each for each, name in PRECISIONS.items() if name == args.dtype), None)
    found = problems(args, own)
    if found:
        raise ParameterError(found)
    if into is not None and into.exists():
        database.load(into)
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
        AicbError: torch is missing, a job cannot be measured, or the process dies; the message says which.
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
            raise AicbError(
                "aiob needs torch, which this Python does not have: pip install -r requirements/workload.txt"
            )
        raise AicbError(f"the measuring process ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return records
