"""Asks AIConfigurator's own estimator, in the wheel aiconfigurator-core, for passes of inference; prints them as CSV.

`PYTHONPATH=<the installed wheel> python -m tests.simulation.predict.estimator` writes
tests/data/measured/inference_estimates.csv: the median of the engines that it knows, two at least, and their range, in
ms. Experts get as many tokens each. With ep above tp its attention is of ep / tp replicas, of `batch` sequences each.
"""

from __future__ import annotations

import csv
import logging
import statistics
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

ENGINES = ("trtllm", "vllm", "sglang")
GPUS = {"A100": "a100_sxm", "H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm"}
TYPES = {"bf16": ("bfloat16",), "fp8": ("fp8",)}
EXPERT_TYPES = {"bf16": ("bfloat16",), "fp8": ("fp8_block", "fp8")}
MODELS = {
    "llama3_8b": ("meta-llama/Meta-Llama-3.1-8B", ((1, 1), (4, 1))),
    "llama3_70b": ("meta-llama/Meta-Llama-3.1-70B", ((4, 1), (8, 1))),
    "qwen3_235b": ("Qwen/Qwen3-235B-A22B", ((4, 4), (8, 1), (1, 8))),
    "deepseek_v3": ("deepseek-ai/DeepSeek-V3", ((8, 8), (8, 1), (1, 8))),
}
"""The name there, and the layouts: tensor parallel size and ranks that share the experts."""
DENSE = ("llama3_8b", "llama3_70b")
BATCHES, LENGTHS = (1, 8, 64), (1024, 4096, 16384)
COLUMNS = (
    "model", "gpu", "precision", "tp", "ep", "batch", "length", "prefill_ms", "prefill_low", "prefill_high",
    "decode_ms", "decode_low", "decode_high",
)  # fmt: skip
Times = tuple[list[float], list[float]]


def engine(model: str, system: str, name: str, layout: tuple[int, int], dtypes: tuple[str, ...]) -> Any:
    """An engine's estimator in the first type that it knows; None: it knows none of this GPU."""
    import aiconfigurator_core
    from aiconfigurator_core.sdk.engine import compile_engine

    path, (tp, ep) = MODELS[model][0], layout
    split: dict[str, Any] = {}
    if model not in DENSE:
        split = {"moe_tp_size": max(1, tp // ep), "moe_ep_size": ep, "attention_dp_size": max(1, ep // tp)}
    for dtype in dtypes:
        types = {"gemm_quant_mode": dtype, "kvcache_quant_mode": "bfloat16", "fmha_quant_mode": "bfloat16"}
        types |= {} if model in DENSE else {"moe_quant_mode": dtype}
        try:
            found = aiconfigurator_core.AicEngine.from_spec(
                compile_engine(path, system, name, tp_size=tp, **split, **types)
            )
            found.predict_prefill_latency(1, LENGTHS[0]), found.predict_decode_latency(1, LENGTHS[0])
        except Exception:
            # The package has no class of its own for what its tables lack.
            if model in DENSE:
                raise
            continue
        return found
    return None


def rows() -> Iterator[list[object]]:
    """The rows, in the order of the file."""
    from aiconfigurator_core.sdk import engine as package

    usual = package.build_model_config

    def balanced(**settings: Any) -> Any:
        found = usual(**settings)
        found.workload_distribution = "balanced"
        return found

    package.build_model_config = balanced
    for (model, (_, layouts)), (gpu, system), precision in product(MODELS.items(), GPUS.items(), TYPES):
        types = (TYPES if model in DENSE else EXPERT_TYPES)[precision]
        for layout in layouts if (gpu, precision) != ("A100", "fp8") else ():
            made = [engine(model, system, name, layout, types) for name in ENGINES]
            engines = [each for each in made if each is not None]
            for batch, length in product(BATCHES, LENGTHS) if len(engines) > 1 else ():
                found: list[object] = [model, gpu, precision, *layout, batch, length]
                for times in (
                    [each.predict_prefill_latency(batch, length) for each in engines],
                    [each.predict_decode_latency(batch, length) for each in engines],
                ):
                    found += [f"{ms:.5g}" for ms in (statistics.median(times), min(times), max(times))]
                yield found


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows():
        writer.writerow(row)
        sys.stdout.flush()
