"""Asks AIConfigurator's own estimator, in the wheel aiconfigurator-core, for passes of inference; prints them as CSV.

`PYTHONPATH=<the installed wheel> python -m tests.simulation.predict.estimator` writes
tests/data/measured/inference_estimates.csv: the median of three engines and their range, in ms.
"""

from __future__ import annotations

import csv
import logging
import statistics
import sys
from collections.abc import Iterator
from itertools import product

ENGINES = ("trtllm", "vllm", "sglang")
GPUS = {"A100": "a100_sxm", "H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm"}
TYPES = {"bf16": "bfloat16", "fp8": "fp8"}
MODELS = {
    "llama3_8b": ("meta-llama/Meta-Llama-3.1-8B", (1, 4)),
    "llama3_70b": ("meta-llama/Meta-Llama-3.1-70B", (4, 8)),
}
BATCHES, LENGTHS = (1, 8, 64), (1024, 4096, 16384)
COLUMNS = (
    "model", "gpu", "precision", "tp", "batch", "length", "prefill_ms", "prefill_low", "prefill_high", "decode_ms",
    "decode_low", "decode_high",
)  # fmt: skip


def rows() -> Iterator[list[object]]:
    """The rows, in the order of the file."""
    import aiconfigurator_core
    from aiconfigurator_core.sdk.engine import compile_engine

    for (model, (path, layouts)), (gpu, system), precision in product(MODELS.items(), GPUS.items(), TYPES):
        for tp in layouts if (gpu, precision) != ("A100", "fp8") else ():
            cache = {"kvcache_quant_mode": "bfloat16", "fmha_quant_mode": "bfloat16"}
            specs = [
                compile_engine(path, system, each, tp_size=tp, gemm_quant_mode=TYPES[precision], **cache)
                for each in ENGINES
            ]
            engines = [aiconfigurator_core.AicEngine.from_spec(spec) for spec in specs]
            for batch, length in product(BATCHES, LENGTHS):
                found: list[object] = [model, gpu, precision, tp, batch, length]
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
    writer.writerows(rows())
