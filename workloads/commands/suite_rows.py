"""Writes the ten workloads of the AICB specification 1.1."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from common.progress import StepProgress
from common.whole_files import whole_set
from workloads import dialects
from workloads.dialects.generation import check
from workloads.job.errors import ParameterError
from workloads.job.naming import default_path
from workloads.job.parameters import DEEPSPEED_DEFAULTS, WorkloadArgs


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One row: its number in the specification and the parameters that differ from the defaults."""

    number: int
    values: dict[str, Any]

    def of(self, dialect: str) -> dict[str, Any]:
        """The parameters in a dialect."""
        more = UNEVEN_405B if self.values["model_name"] == "Llama3_405B" and dialect == "framework" else {}
        if self.values["frame"] == "DeepSpeed" and dialect == "framework":
            return {**DEEPSPEED_DEFAULTS, **self.values}
        return {**self.values, **more}


_MEGATRON = ("model_name", "hidden_size", "num_layers", "num_attention_heads", "seq_length", "ffn_hidden_size",
             "tensor_model_parallel_size", "pipeline_model_parallel")  # fmt: skip


def _megatron(*sizes: str | int, sp: bool, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "frame": "Megatron", **dict(zip(_MEGATRON, sizes, strict=True)), "enable_sequence_parallel": sp,
        "use_distributed_optimizer": True, "vocab_size": vocab, **more,
    }  # fmt: skip


def _zero(name: str, stage: int, hidden: int, layers: int, heads: int, ffn: int, **more: Any) -> dict[str, Any]:
    return {
        "frame": "DeepSpeed", "stage": stage, "model_name": name, "hidden_size": hidden, "num_layers": layers,
        "num_attention_heads": heads, "seq_length": 4096, "ffn_hidden_size": ffn, "vocab_size": 32000, **more,
    }  # fmt: skip


GPT_VOCAB, LLAMA_VOCAB, LLAMA3_VOCAB = 50257, 32000, 128256
SPEC_LAYERS_405B = 126
"""Layers of Llama 3 405B in the specification; AICB's 16 pipeline stages need a multiple of 16, so its row has 128."""
UNEVEN_405B = {"num_layers": SPEC_LAYERS_405B, "num_layers_first_stage": 7, "num_layers_last_stage": 7}
"""Megatron can divide the specification's layers: 7, fourteen times 8, and 7."""

ROWS = tuple(
    SuiteRow(number, values)
    for number, values in enumerate(
        (
            _megatron("LLaMA_7B", 4096, 32, 32, 2048, 16384, 1, 1, sp=False, vocab=LLAMA_VOCAB),
            _megatron("GPT_13B", 5120, 40, 40, 2048, 20480, 2, 1, sp=True, vocab=GPT_VOCAB),
            _megatron("GPT_22B", 6144, 48, 64, 2048, 24576, 4, 1, sp=False, vocab=GPT_VOCAB),
            _megatron("LLaMA_65B", 8192, 80, 64, 4096, 28672, 8, 2, sp=True, vocab=LLAMA_VOCAB),
            _megatron("GPT_175B", 12288, 96, 96, 2048, 49152, 8, 8, sp=True, vocab=GPT_VOCAB),
            _megatron("GPT_175B", 12288, 96, 96, 2048, 49152, 8, 8, sp=False, vocab=GPT_VOCAB),
            _megatron("Llama3_405B", 16384, -(-SPEC_LAYERS_405B // 16) * 16, 128, 8192, 53248, 8, 16, sp=True,
                      vocab=LLAMA3_VOCAB),
            _zero("LLaMA_7B", 2, 4096, 32, 32, 11008, reduce_bucket_size=10**9, allgather_bucket_size=10**9),
            _zero("LLaMA_65B", 3, 8192, 80, 64, 28672, reduce_bucket_size=10**9, prefetch_bucket_size=10**9,
                  max_live_parameters=6 * 10**8, param_persistence_threshold=10**6),
            _megatron("Mistral_8x7B", 4096, 32, 32, 2048, 14336, 2, 1, sp=True, vocab=LLAMA_VOCAB, moe_enable=True,
                      expert_model_parallel_size=8, num_experts=8, moe_router_topk=2, moe_grouped_gemm=True),
        ),
        start=1,
    )
)  # fmt: skip


class WrittenRow(NamedTuple):
    """A row's file, and the line to say of it."""

    path: Path
    line: str


def row_list(text: str) -> list[int]:
    """Rows from `1,2,8`.

    Raises:
        ArgumentTypeError: the text is no such list.
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of rows like 1,2,8") from None


def write_all(
    *,
    world_size: int,
    output_dir: Path,
    rows: list[int] | None = None,
    target: str = "csv",
    num_microbatches: int | None = None,
    dialect: str = dialects.DEFAULT_DIALECT,
    break_rules: bool = False,
) -> "list[WrittenRow]":
    """Write the chosen rows (default all) into output_dir. Returns what was written.

    `world_size` is in ranks. All rows are checked before the first is written.

    Raises:
        ParameterError: rows do not fit; the message names each of them.
    """
    chosen = dialects.get(dialect)
    wanted = range(1, len(ROWS) + 1) if rows is None else rows
    there = [number for number in wanted if 1 <= number <= len(ROWS)]
    problems = [f"row {number} is none of the rows 1 to {len(ROWS)}" for number in wanted if number not in there]
    jobs = [(number, parameters(ROWS[number - 1], world_size, num_microbatches, dialect)) for number in there]
    for number, args in jobs:
        try:
            check(args, chosen, target, break_rules=break_rules)
        except ParameterError as error:
            problems += [f"row {number} ({args.model_name}): {problem}" for problem in error.problems]
    if problems:
        raise ParameterError(problems)
    written = []
    with StepProgress("rows written", len(jobs)) as progress, whole_set():
        for done, (number, args) in enumerate(jobs, start=1):
            made = chosen.workload(args) if target == "csv" else chosen.simai(args)
            path = output_dir / f"{number:02d}-{default_path(args, target, dialect).name}"
            said = f"{len(made)} rows, {made.save(path)} bytes -> {path}"
            written.append(WrittenRow(path, f"[{done}/{len(jobs)}] row {number} {args.model_name}: {said}"))
            progress.advance()
    return written


def parameters(row: SuiteRow, world_size: int, num_microbatches: int | None, dialect: str) -> WorkloadArgs:
    """The parameters of a row on world_size GPUs; without num_microbatches, one micro-batch per pipeline stage."""
    args = WorkloadArgs(world_size=world_size, **row.of(dialect))
    count = args.pipeline_model_parallel if num_microbatches is None else num_microbatches
    return replace(args, global_batch=count * max(1, args.data_parallel_size) * args.micro_batch)
