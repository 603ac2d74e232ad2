"""The verb `trace`: jobs from options, a process for each stage, a workload file for each."""

import argparse
import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import Any

from common.errors import MistakeList, SimulationError
from common.summary import JsonValue, Summary
from common.whole_files import refuse_present, refuse_stdout, whole_set
from workloads import dialects, options
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError, ParameterError
from workloads.job.parameters import DEFAULTS, WorkloadArgs
from workloads.rows.conversion import rows_of
from workloads.trace import checks
from workloads.trace.deep import deep_traces, is_whole
from workloads.trace.depth import depth_of
from workloads.trace.job import NAMES, TraceJob
from workloads.trace.options import IMPLIED
from workloads.trace.record import Trace, load

KNOWN = {
    "Megatron": {"torch": "2.13.0", "megatron-core": "0.16.1"},
    "FSDP2": {"torch": "2.13.0"},
    "DeepSpeed": {"torch": "2.13.0", "deepspeed": "0.19.8"},
}
"""The packages that each frame needs, in the versions whose traps `shims` knows."""
CONTEXT = {"transformer-engine": "2.20.2"}
"""The package that context parallelism needs beside them."""
INSTALL = "pip install --require-hashes --no-deps -r requirements/trace.lock -r requirements/torch-cpu.lock"
ROOT = Path(__file__).resolve().parents[2]
SELF_CHECK = Path(__file__).with_name("self_check.jsonl.xz")
LOST = {
    "epoch_num": "a trace says --iterations",
    "pp_rank": "a trace says --pp_stage",
}
PR_SET_PDEATHSIG = 1
NO_PLACE = "a trace has no such parameter; leave it out"


def run(arguments: argparse.Namespace) -> Summary:
    """Trace what the options describe.

    Raises:
        AicbError: the job cannot be traced.
        SimulationError: a package is missing.
    """
    given = vars(arguments)
    output: Path = given.pop("output")
    shallow = given.pop("layers_traced", None)
    options.with_file(given)
    given.setdefault("frame", "Megatron")
    stages = _stages(given)
    args = _resolved(given)
    options.note_idle(given, args, "framework", "csv")
    job = _job(given, args)
    jobs = _jobs(job, list(stages(job)))
    mistakes = MistakeList()
    if len(jobs) > 1:
        refuse_stdout(output, "each stage has a file", mistakes)
    mistakes.check()
    unknown = missing_or_unknown(job)
    refuse_present(_place(output, jobs, each) for each in jobs)
    tracing = traced_by_frameworks
    if unknown:
        print(f"warning: {unknown}; checking it with recorded traces", file=sys.stderr)
        tracing = partial(run_checked, job.frame)
    if shallow is not None and all(is_whole(each, shallow) for each in jobs):
        print(
            f"note: no effect on this job: --layers_traced {shallow[0]},{shallow[1]} saves no layer of its "
            f"{depth_of(job)}; it is traced whole",
            file=sys.stderr,
        )
    written: list[dict[str, JsonValue]] = []
    lines = []
    with whole_set():
        for traced in tracing(jobs) if shallow is None else deep_traces(jobs, shallow, tracing):
            path = _place(output, jobs, traced.job)
            workload = Workload(rows_of(traced.ops, ends(traced)))
            size = workload.save(path, "full")
            lines.append(f"wrote {path}: rank {traced.job.rank}, {len(traced.ops)} operations, {size} bytes")
            written.append({"file": str(path), "rank": traced.job.rank, "operations": len(traced.ops), "bytes": size})
    return Summary("\n".join([*lines, f"of {args.in_short()}"]), {"files": written, "job": job.to_dict()})


def _place(output: Path, jobs: list[TraceJob], job: TraceJob) -> Path:
    return output if len(jobs) == 1 else output.with_name(f"{output.stem}.stage{job.pp_stage}{output.suffix}")


def _jobs(job: TraceJob, stages: list[int | None]) -> list[TraceJob]:
    """The job of each stage that is traced."""
    found = [
        f"pp_stage {stage} is none of the stages 0 to {job.pipeline_model_parallel - 1}"
        for stage in stages
        if stage is not None and not 0 <= stage < job.pipeline_model_parallel
    ]
    jobs = [job] if found else [replace(job, rank=_rank(job, stage)) for stage in stages]
    found += sorted({problem for each in jobs for problem in checks.problems(each)})
    if found:
        raise ParameterError(found)
    return jobs


def _stages(given: dict[str, Any]) -> Callable[[TraceJob], Iterable[int | None]]:
    """Which stages are traced; None is the rank as it is given."""
    if given.pop("all_stages", False):
        return lambda job: range(job.pipeline_model_parallel)
    stage = given.pop("pp_stage", None)
    return lambda _: [stage]


def _rank(job: TraceJob, stage: int | None) -> int:
    return job.rank if stage is None else stage * (job.world_size // max(1, job.pipeline_model_parallel))


def job_of(given: dict[str, Any]) -> TraceJob:
    """The job of parsed options; a preset fills in what they leave open.

    Raises:
        ParameterError: there is no such preset, or a trace has no place for a parameter.
    """
    return _job(given, _resolved(given))


def _job(given: dict[str, Any], args: WorkloadArgs) -> TraceJob:
    ours = set(NAMES)
    frame = given.get("frame", "Megatron")
    lost = _lost(args, ours)
    if lost:
        raise ParameterError([f"{name} is {getattr(args, name)!r}: {LOST.get(name, NO_PLACE)}" for name in lost])
    values = {
        name: value
        for name, value in args.to_dict().items()
        if name in ours and (name in given or value != getattr(DEFAULTS, name))
    }
    values |= {name: getattr(args, name) for name in ("activation_recompute", "qk_nope_dim", "qk_rope_dim")}
    values |= {"ffn_hidden_size": args.ffn_size, "q_lora_rank": args.q_lora_rank}
    values |= {name: value for name, value in given.items() if name in ours}
    kind, _, path = values.get("routing", "").partition(":")
    if kind == "file":
        # The traced process runs in another folder.
        values["routing"] = f"file:{Path(path).absolute()}"
    values.setdefault("num_attention_heads", max(1, args.hidden_size // 128))
    if "num_microbatches" not in values:
        values["num_microbatches"] = _micro_batches(given, args)
    if frame == "DeepSpeed":
        # ZeRO 3 learns in its first iteration and differs in its second.
        values.setdefault("iterations", 3)
    return TraceJob(**{"hidden_size": args.hidden_size, "num_layers": args.num_layers, **values})


def _resolved(given: dict[str, Any]) -> WorkloadArgs:
    shared = {field.name for field in fields(WorkloadArgs)}
    for_args = {name: value for name, value in given.items() if name in shared}
    for_args["frame"] = given.get("frame", "Megatron")
    try:
        return options.resolve(for_args, given.get("model_size"), "csv", "framework")
    except ValueError as error:
        raise ParameterError([str(error)]) from None


def _lost(args: WorkloadArgs, ours: set[str]) -> list[str]:
    """Parameters that change what generate says and that a job has no place for."""
    known = ours | IMPLIED | dialects.get("framework").without_effect(args, "csv")
    return [name for name, value in args.to_dict().items() if name not in known and value != getattr(DEFAULTS, name)]


def _micro_batches(given: dict[str, Any], args: WorkloadArgs) -> int:
    if "global_batch" in given:
        return max(1, args.num_microbatches)
    return args.pipeline_model_parallel


def ends(trace: Trace) -> list[int]:
    """Numbers of operations before the end of the set-up and of each iteration."""
    return list(accumulate(map(len, trace.iterations)))


def missing_or_unknown(job: TraceJob) -> str | None:
    """A sentence about versions that nobody has checked, None where all are known.

    Raises:
        SimulationError: a package is missing; the message has the line that installs it.
    """
    unknown = []
    for package, known in (KNOWN[job.frame] | (CONTEXT if job.context_parallel_size > 1 else {})).items():
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise SimulationError(
                f"tracing {job.frame} needs {package} {known}, which this Python does not have; in an environment of "
                f"its own:\n{INSTALL}"
            ) from None
        if version.partition("+")[0] != known:
            unknown.append(f"{package} is {version}, the tracer is made for {known}")
    return "; ".join(unknown) or None


def run_checked(frame: str, jobs: list[TraceJob]) -> list[Trace]:
    """As traced_by_frameworks; recorded jobs of a frame are traced before them, in the same processes.

    Raises:
        AicbError: the installed versions send something else; nothing should be written then.
    """
    recorded = [trace for trace in load(SELF_CHECK) if trace.job.frame == frame]
    traces = traced_by_frameworks([*(trace.job for trace in recorded), *jobs])
    for before, now in zip(recorded, traces, strict=False):
        difference = first_difference(before, now)
        if difference:
            raise AicbError(f"the installed {frame} does not send what {before.versions} sent: {difference}")
    return traces[len(recorded) :]


def first_difference(before: Trace, now: Trace) -> str | None:
    """Where two traces of a job differ, by the identities of their operations; None where they are the same."""
    for number, (old, new) in enumerate(zip(before.ops, now.ops, strict=False)):
        if (old.phase, *old.identity) != (new.phase, *new.identity):
            return f"operation {number} is {new.comm_type.name} of {new.bytes} bytes in {new.module or new.phase}"
    if len(before.ops) != len(now.ops):
        return f"{len(now.ops)} operations, not {len(before.ops)}"
    return None


def traced_by_frameworks(jobs: list[TraceJob], python: str = sys.executable) -> list[Trace]:
    """Trace jobs, each in a process of its own.

    Raises:
        AicbError: the framework refuses a job.
        SimulationError: a process dies.
    """
    lines = "".join(f"{json.dumps(job.to_dict())}\n" for job in jobs)
    command = [python, "-m", "workloads.trace.worker"]
    die_with_us = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGTERM)
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, cwd=ROOT, check=False, preexec_fn=die_with_us
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    errors = sorted({answer["error"] for answer in answers if "error" in answer})
    if errors:
        raise ParameterError([f"{jobs[0].frame} refuses the job: {error}" for error in errors])
    if done.returncode or len(answers) != len(jobs):
        raise SimulationError(f"the traced process ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    return [Trace.from_record(answer) for answer in answers]
