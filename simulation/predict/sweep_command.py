"""Ranks the layouts of a model over GPUs: `python -m simulation sweep`."""

import argparse
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from common.errors import MistakeList, SimulationError, input_problem
from common.progress import watched
from common.summary import JsonValue, Summary, counted
from common.whole_files import write_whole
from simulation.predict.command import calibrated_machines

if TYPE_CHECKING:  # the start of the command needs none of them
    from simulation.predict.iteration import Prediction
    from simulation.predict.layouts import Ranking
    from simulation.predict.machine import Machine

LISTS = {
    "tp": "tensor parallel sizes", "pp": "pipeline stages", "vpp": "chunks of a stage", "cp": "context parallel sizes",
    "ep": "expert parallel sizes", "mbs": "samples of a micro-batch", "recompute": "none, selective, full",
    "fsdp": "0, 1",
}  # fmt: skip
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
TARGET = re.compile(rf"(?P<tokens>{_NUMBER}(?:e[0-9]{{1,3}})?)\s*tokens\s+in\s+(?P<days>{_NUMBER})\s*days?")
SECONDS_A_DAY = 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See VerbModule."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="PRESET", help="a model of the dialect framework, such as llama3_70b")
    what.add_argument(
        "--job", type=Path, metavar="FILE", help="a model in JSON or YAML, in the columns of predict --rows"
    )
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="A100, H100, H200, B200, B300, GB200, GB300, L40S")
    parser.add_argument("--gpus", metavar="N", help="how many GPUs; with --target the most")
    parser.add_argument("--gbs", required=True, metavar="N", help="samples of an iteration")
    parser.add_argument("--seq", metavar="N", help="tokens of a sample (the model's)")
    parser.add_argument("--precision", metavar="WORD", help="bf16, fp8 or nvfp4 (bf16)")
    for key, text in LISTS.items():
        parser.add_argument(f"--{key}", dest=f"list_{key}", metavar="LIST", help=f"{text}, such as 1,2,4")
    parser.add_argument("--target", metavar="TEXT", help='"1e12 tokens in 14 days": the fewest GPUs that reach it')
    parser.add_argument("--price", type=float, metavar="X", help="of a GPU and hour: the cost of a million tokens")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="layouts that are shown (default: %(default)s)"
    )
    parser.add_argument("--calibrate", type=Path, metavar="FILE.csv", help="fit the machine's factors to measured rows")
    parser.add_argument("--force", action="store_true", help="overwrite a file that has other content")


def run(arguments: argparse.Namespace) -> Summary:
    """See VerbModule."""
    from simulation.predict import report

    row, machine, needed = _asked(arguments)
    found = _fewest(arguments, row, machine, needed) if needed else _ranked(arguments, row, machine)
    if not found.fitting:
        if needed and found.divided:
            raise SimulationError(f"no layout of at most {row['gpus']} GPUs reaches {arguments.target}")
        what = f"{counted(found.divided, 'layout')} divide evenly"
        least = f"; the least memory is {found.least_gib:.0f} GiB of {machine.memory_GiB:g}" if found.divided else ""
        raise SimulationError(f"none fits: {what}{least}")
    if arguments.output is not None:
        rows = [_cells(each) for each in found.fitting]
        write_whole(arguments.output, [report.csv_text(rows, found.fitting).encode()], keep_other=not arguments.force)
    shown = found.fitting[: arguments.top]
    return Summary(
        _text(found, shown, machine, arguments.price),
        {
            "layouts": found.divided, "fitting": len(found.fitting), "gpus": shown[0].job.gpus,
            "best": [_data(each, arguments.price) for each in shown],
            "second_behind_ms": dict(found.second_behind()) if len(found.fitting) > 1 else {},
            "megatron": megatron_arguments(shown[0]), "torchtitan": torchtitan_settings(shown[0]),
        },
    )  # fmt: skip


def _asked(arguments: argparse.Namespace) -> "tuple[dict[str, str], Machine, float]":
    """The model's row, the machine, and tokens a second that --target needs (0: no target).

    Raises:
        InputProblems: all mistakes of the options.
    """
    from simulation.predict.job_table import preset, read_job
    from simulation.predict.machine import machine_of, machines

    mistakes = MistakeList()
    machine = machine_of(arguments.gpu)
    if machine is None:
        mistakes.add("--gpu", arguments.gpu, f"is none of {', '.join(machines())}")
    needed = _target(arguments.target, mistakes) if arguments.target else 0.0
    _check_numbers(arguments, mistakes)
    mistakes.check()
    assert machine is not None
    row = preset(arguments.model) if arguments.model else read_job(arguments.job)
    for key in ("dp", "micro_batches", *LISTS):
        row.pop(key, None)
    row |= {"gpu": machine.gpu, "gpus": arguments.gpus or "16384", "gbs": arguments.gbs}
    row |= {key: value for key in ("seq", "precision") if (value := getattr(arguments, key))}
    return row, calibrated_machines(arguments.calibrate)[machine.gpu], needed


def _target(text: str, mistakes: MistakeList) -> float:
    """Tokens a second of `1e12 tokens in 14 days`."""
    match = TARGET.fullmatch(text.strip())
    if match is None or not float(match["days"]) or not float(match["tokens"]):
        mistakes.add("--target", text, 'must be such as "1e12 tokens in 14 days"')
        return 0.0
    return float(match["tokens"]) / float(match["days"]) / SECONDS_A_DAY


def _check_numbers(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    for flag, value in (("--gpus", arguments.gpus), ("--gbs", arguments.gbs)):
        if value is not None and not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 24):
            mistakes.add(flag, value, f"must be a whole number from 1 to {(1 << 24) - 1}")
    if arguments.gpus is None and not arguments.target:
        mistakes.add("--gpus", None, "is missing: how many GPUs, or --target")
    if arguments.top < 1:
        mistakes.add("--top", arguments.top, "must be at least 1")
    if arguments.price is not None and not 0 < arguments.price < 1e6:
        mistakes.add("--price", arguments.price, "must be above 0")


def _ranked(arguments: argparse.Namespace, row: Mapping[str, str], machine: "Machine") -> "Ranking":
    from simulation.predict import layouts
    from simulation.predict.job_table import job_of

    # The model's mistakes are told before all layouts.
    one = job_of({**row, "gpus": "1", "gbs": "1"}, arguments.model or str(arguments.job))
    swept = layouts.choices(row, _lists(arguments), machine.servers_of(one.gpus_per_node) or machine)
    total = prod(len(values) for values in swept.values())
    if total > layouts.MOST:
        raise input_problem("--tp and the other lists", None, f"are {total} layouts; at most {layouts.MOST} are swept")
    return layouts.ranking(iter(watched("layouts", total, layouts.jobs(row, swept))), machine)


def _lists(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The values that were given for the swept columns.

    Raises:
        InputProblems: a list with a value that is not allowed; all of them.
    """
    mistakes, found = MistakeList(), {}
    for key, text in LISTS.items():
        given = getattr(arguments, f"list_{key}")
        if given is None:
            continue
        words = [word.strip() for word in given.split(",")]
        allowed = text.split(", ") if key in ("recompute", "fsdp") else None
        for word in words:
            if allowed and word not in allowed:
                mistakes.add(f"--{key}", word, f"must be {text}")
            if not allowed and not (word.isascii() and word.isdigit() and 0 < int(word) < 1 << 20):
                mistakes.add(f"--{key}", word, "must be whole numbers above 0, such as 1,2,4")
        found[key] = words
    mistakes.check()
    return found


def _fewest(arguments: argparse.Namespace, row: dict[str, str], machine: "Machine", needed: float) -> "Ranking":
    """The ranking of the fewest GPUs, a power of two of servers, that make `needed` tokens a second."""
    gpus, most = 8, int(row["gpus"])
    found = None
    while gpus <= most:
        found = _ranked(arguments, {**row, "gpus": str(gpus)}, machine)
        if found.fitting and found.fitting[0].tokens_per_second_and_gpu * gpus >= needed:
            return found
        gpus *= 2
    if found is None:
        raise input_problem("--gpus", row["gpus"], "must be at least 8 with --target")
    found.fitting.clear()
    return found


def _text(found: "Ranking", shown: "list[Prediction]", machine: "Machine", price: float | None) -> str:
    head = f"{'tp':>3} {'pp':>3} {'vpp':>3} {'cp':>3} {'dp':>5} {'ep':>4} {'mbs':>3} {'recompute':<9} {'ms':>10} "
    lines = [
        f"{counted(len(found.fitting), 'layout')} of {found.divided} fit on {shown[0].job.gpus} {machine.gpu}",
        f"{head}{'tokens/s/GPU':>12} {'MFU':>6} {'GiB':>6}{' cost/Mtoken' if price else ''}",
    ]
    for each in shown:
        job = each.job
        cost = f" {_cost(each, price):>11.4f}" if price else ""
        lines.append(
            f"{job.tp:>3} {job.pp:>3} {job.vpp:>3} {job.cp:>3} {job.dp:>5} {job.ep:>4} {job.mbs:>3} {job.recompute:<9} "
            f"{each.ms:>10.1f} {each.tokens_per_second_and_gpu:>12.0f} {100 * each.mfu:>5.1f}% "
            f"{each.memory.reserved:>6.1f}{cost}"
        )
    if len(found.fitting) > 1:
        behind = [f"{key} {ms:+.1f} ms" for key, ms in found.second_behind().items() if abs(ms) >= 0.05][:3]
        lines.append(f"the second takes {found.fitting[1].ms - found.fitting[0].ms:.1f} ms longer: {', '.join(behind)}")
    return "\n".join([*lines, "Megatron-LM:", *wrap(megatron_arguments(shown[0]), 110, break_on_hyphens=False)])


def _cost(found: "Prediction", price: float | None) -> float:
    """Of a million tokens."""
    return (price or 0.0) / 3600 / found.tokens_per_second_and_gpu * 1e6


def _cells(found: "Prediction") -> dict[str, str]:
    job = found.job
    keys = ("gpu", "gpus", "precision", "seq", "mbs", "micro_batches", "tp", "pp", "vpp", "cp", "dp", "ep", "recompute")
    return {"name": job.name, **{key: str(getattr(job, key)) for key in keys}, "fsdp": str(int(job.fsdp))}


def _data(found: "Prediction", price: float | None) -> dict[str, JsonValue]:
    cost: dict[str, JsonValue] = {"cost_per_million_tokens": _cost(found, price)} if price else {}
    return {
        **_cells(found), "predicted_ms": found.ms, "reserved_gib": found.memory.reserved, "mfu": found.mfu,
        "tokens_per_second_and_gpu": found.tokens_per_second_and_gpu, **cost,
    }  # fmt: skip


def megatron_arguments(found: "Prediction") -> str:
    """The arguments of Megatron-LM's pretrain_gpt.py that give this layout."""
    job = found.job
    words = [
        f"--tensor-model-parallel-size {job.tp}", f"--pipeline-model-parallel-size {job.pp}",
        f"--context-parallel-size {job.cp}", f"--micro-batch-size {job.mbs}",
        f"--global-batch-size {job.mbs * job.micro_batches * job.dp}", f"--seq-length {job.seq}",
    ]  # fmt: skip
    if job.vpp > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {job.vpp}")
    if job.ep > 1:
        words.append(f"--expert-model-parallel-size {job.ep}")
    if job.sp:
        words.append("--sequence-parallel")
    if job.recompute == "full":
        words.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    if job.distributed_optimizer:
        words.append("--use-distributed-optimizer")
    words.append(
        {"bf16": "--bf16", "fp8": "--bf16 --fp8-format hybrid", "nvfp4": "--bf16 --fp4-format e2m1"}[job.precision]
    )
    return " ".join(words)


def torchtitan_settings(found: "Prediction") -> str:
    """The sections of torchtitan's TOML that give this layout."""
    job = found.job
    return (
        f"[training]\nlocal_batch_size = {job.mbs}\nglobal_batch_size = {job.mbs * job.micro_batches * job.dp}\n"
        f"seq_len = {job.seq}\n[parallelism]\ndata_parallel_shard_degree = {job.dp}\n"
        f"tensor_parallel_degree = {job.tp}\npipeline_parallel_degree = {job.pp}\n"
        f"context_parallel_degree = {job.cp}\nexpert_parallel_degree = {job.ep}\n"
    )
