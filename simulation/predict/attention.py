"""Gives the ratio of a training pass of attention to the inference engines' forward pass in the tables.

data/attention.csv: cuDNN's causal passes on H200 and GB200 (NVIDIA/cudnn-frontend, benchmark/attention_training;
tests/data/measured/attention_passes.csv) over the tables' time of that shape, backward of its FLOPs: engines also turn
queries and store keys and values, which short sequences show. `python -m tests.simulation.predict.kernel_tables`
writes it.
"""

import csv
from functools import cache

from common.interpolation import over_logs
from simulation.predict.kernels import DATA
from simulation.predict.operations import Attention

FLASH_2 = (1.75, 1.625)
"""How many times longer FlashAttention-2, the kernel of torch before cuDNN's, takes on H100 than the tables' kernels,
forward and backward: the middles of 1.5 to 2.0 and of 1.5 to 1.75 (arXiv:2407.08608, section 4.1).
"""
HOPPER = ("H100", "H200")
CUDNN_BACKWARD, WIDE_BACKWARD = 1.2, 1.24
"""How many times longer cuDNN's causal backward pass takes for a FLOP than its forward one, with heads of 128 and with
queries wider than values: the medians of Llama-3.1's and DeepSeek-V3's heads, 2,048 to 32,768 tokens, on H200 and GB200
(NVIDIA/cudnn-frontend, benchmark); those that SimuMax measured on B200 are 1.20 and 1.22 (test_kernels_held.py).
"""
MEASURED = {"H100": "H200", "H200": "H200", "GB200": "GB200", "GB300": "GB200"}
"""Whose measured passes hold for a GPU."""
AS_TABLES = ("H100", "H200")
"""Of these, the GPUs whose forward pass takes the tables' time, as B200's by Transformer Engine (SimuMax) and our
H200's by torch's cuDNN do; the backward passes of both take cuDNN's own times (test_kernels_held.py).
"""


def over_tables(gpu: str, at: Attention, *, flash_2: bool) -> float:
    """The ratio of a pass to the tables' forward pass; flash_2: by FlashAttention-2, as torch has it on Hopper."""
    flops = at.products_of_backward if at.backward else 1.0
    if flash_2 and gpu in HOPPER:
        return FLASH_2[at.backward] * flops
    wide = at.qk > at.v
    if not at.backward and (gpu in AS_TABLES or gpu not in MEASURED):
        return 1.0
    if gpu in MEASURED:
        tokens, *passes = _measured()[MEASURED[gpu], wide]
        return over_logs(tokens, passes[at.backward], at.seq) * flops
    return flops * (WIDE_BACKWARD if wide else CUDNN_BACKWARD)


@cache
def _measured() -> dict[tuple[str, bool], list[tuple[float, ...]]]:
    """By GPU and whether queries are wider than values: tokens, and both passes, over the tables."""
    found: dict[tuple[str, bool], list[tuple[float, ...]]] = {}
    for row in csv.DictReader(DATA.with_name("attention.csv").read_text(encoding="utf-8").splitlines()):
        point = (float(row["seq"]), float(row["forward"]), float(row["backward"]))
        found.setdefault((row["gpu"], row["wide"] == "1"), []).append(point)
    return {key: [*zip(*points, strict=True)] for key, points in found.items()}
