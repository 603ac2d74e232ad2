"""Makes the tables of kernels that prediction interpolates, from those of the package aiconfigurator-core.

`PYTHONPATH=<the installed wheel>:. python -m tests.simulation.predict.kernel_tables` writes simulation/predict/data
again: gpu_kernels.csv.xz, the median of what all engines took at each place of AXES; attention.csv, the passes of
tests/data/measured/attention_passes.csv over those; experts.csv, the figures of experts_us that explain the balanced
tables of experts best.
"""

from __future__ import annotations

import csv
import io
import lzma
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from itertools import product
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from simulation.predict.kernels import DATA, EXPERTS, WEIGHT_BYTES, ExpertRates, attention_us
from simulation.predict.machine import machines
from simulation.predict.operations import Attention
from tests.simulation.predict.accuracy import DATA as MEASURED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

GPUS = ("A100", "B200", "B300", "GB200", "GB300", "H100", "H200", "L40S")
SIZES = (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 51200, 65536)
AXES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "product": ((1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768), SIZES, SIZES),
    "attention": ((1024, 2048, 4096, 8192, 16384), (8, 16, 32, 64, 96, 128), (64, 128)),
    "decode": ((128, 512, 2048, 8192, 32768, 131072), (1, 8, 64, 512, 4096, 16384), (1, 4, 8, 16)),
    "all_reduce": ((2, 4, 8), tuple(2 << at for at in range(10, 30, 2)), (1,)),
    "latent": ((128, 512, 1024, 2048, 4096, 8192, 16384, 32768),
               (1, 4, 16, 32, 64, 128, 256, 512, 1024, 4096), (160,)),
    "latent_decode": ((128, 1024, 4096, 16384, 65536, 131072), (1, 4, 8, 16, 64, 256, 1024),
                      (1, 8, 16, 32, 64, 128)),
}  # fmt: skip
"""By kernel, the places: see simulation/predict/kernels.py."""
FILES = {
    "product": "gemm/*/*/gemm_perf.parquet", "attention": "attention/*/*/context_attention_perf.parquet",
    "decode": "attention/*/*/generation_attention_perf.parquet", "all_reduce": "comm/*/*/custom_allreduce_perf.parquet",
    "latent": "mla/*/*/context_mla_perf.parquet", "latent_decode": "mla/*/*/generation_mla_perf.parquet",
    "experts": "moe/*/*/moe_perf.parquet",
}  # fmt: skip
TYPES = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
EXPERT_TYPES = TYPES | {"fp8_block": "fp8"}
SAMPLE = 2500
"""Rows of a table of experts that the search sees at most."""
Cells = Mapping[str, Any]
Place = tuple[str, int, int, int]
"""Type, and the three sizes."""


def _product(row: Cells) -> Place | None:
    dtype = TYPES.get(row["gemm_dtype"])
    return (dtype, row["m"], row["n"], row["k"]) if dtype else None


def _plain(row: Cells, dtype: str) -> bool:
    """Whether a row is of 16 bits, a cache of 16 bits, without window."""
    return row[dtype] == row["kv_cache_dtype"] == "bfloat16" and not row.get("window_size")


def _attention(row: Cells) -> Place | None:
    if not _plain(row, "attn_dtype") or row["step"]:
        return None
    return "bf16", row["isl"], row["num_heads"] * row["batch_size"], row["head_dim"]


def _decode(row: Cells) -> Place | None:
    groups = row.get("num_key_value_heads") or row["num_heads"]
    if not _plain(row, "attn_dtype") or row["head_dim"] != 128 or row["num_heads"] % groups:
        return None
    return "bf16", row["isl"] + row["step"], row["batch_size"] * groups, row["num_heads"] // groups


def _latent(row: Cells) -> Place | None:
    if not _plain(row, "mla_dtype") or row["step"]:
        return None
    return "bf16", row["isl"], row["batch_size"] * row["num_heads"], 160


def _latent_decode(row: Cells) -> Place | None:
    if not _plain(row, "mla_dtype"):
        return None
    return "bf16", row["isl"] + row["step"], row["batch_size"], row["num_heads"]


def _all_reduce(row: Cells) -> Place | None:
    if row["allreduce_dtype"] != "bfloat16" or str(row.get("backend")).endswith("_eager"):
        return None
    # The package counts elements.
    return "bf16", row["num_gpus"], 2 * row["message_size"], 1


PLACES: Mapping[str, Callable[[Cells], Place | None]] = {
    "product": _product, "attention": _attention, "decode": _decode, "all_reduce": _all_reduce, "latent": _latent,
    "latent_decode": _latent_decode,
}  # fmt: skip


@cache
def systems() -> Path:
    """The tables of the installed package."""
    found = find_spec("aiconfigurator_core")
    assert found and found.submodule_search_locations, "PYTHONPATH has no aiconfigurator-core"
    return Path(found.submodule_search_locations[0]) / "systems" / "data"


def _rows(file: Path) -> Iterator[Cells]:
    from pyarrow import parquet

    table = parquet.read_table(file).to_pydict()
    return (dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True))


def _folder(gpu: str) -> Path:
    return systems() / (gpu.lower() if gpu[0] == "G" or gpu == "L40S" else f"{gpu.lower()}_sxm")


def _files(gpu: str, kernel: str) -> list[Path]:
    """Of the sums over GPUs and of experts the newest version of each engine."""
    found = sorted(_folder(gpu).glob(FILES[kernel]))
    if kernel not in ("all_reduce", "experts"):
        return found
    newest = {path.parts[-3]: path for path in sorted(found, key=lambda path: _version(path.parts[-2]))}
    return [*newest.values()]


def _version(text: str) -> list[tuple[int, float, str]]:
    """Key that sorts versions: a release candidate comes before its release."""
    parts = [part.partition("rc") for part in text.split(".")]
    return [(_digits(head), _digits(number) if rc else inf, head) for head, rc, number in parts]


def _digits(text: str) -> int:
    return int("".join(filter(str.isdigit, text)) or 0)


def kernel_us(kernel: str, files: Iterable[Path]) -> dict[Place, float]:
    """Microseconds at each place of the axes that was measured."""
    axes, found = [set(axis) for axis in AXES[kernel]], defaultdict[Place, list[float]](list)
    for file in files:
        for row in _rows(file):
            place = PLACES[kernel](row)
            if place and all(size in axis for size, axis in zip(place[1:], axes, strict=True)):
                found[place].append(1e3 * row["latency"])
    order = {dtype: at for at, dtype in enumerate(TYPES.values())}
    return {place: median(found[place]) for place in sorted(found, key=lambda its: (order[its[0]], its[1:]))}


def kernels_text() -> str:
    """gpu_kernels.csv."""
    lines = ["kernel,gpu,dtype,m,n,k,us"]
    for kernel, gpu in product(AXES, GPUS):
        found = kernel_us(kernel, _files(gpu, kernel))
        lines += [f"{kernel},{gpu},{','.join(map(str, at))},{us:.4g}" for at, us in found.items()]
    return "\n".join([*lines, ""])


def attention_text() -> str:
    """attention.csv: cuDNN's passes over the tables' forward pass, the backward pass for each of its FLOPs."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("gpu", "wide", "seq", "forward", "backward"))
    text = (MEASURED / "attention_passes.csv").read_text(encoding="utf-8")
    points = []
    for row in csv.DictReader(text.splitlines()):
        batch, seq, heads, qk, v = (int(row[key]) for key in ("batch", "seq", "heads", "qk", "v"))
        if row["by"] == "cuDNN":
            us = attention_us(row["gpu"], seq, heads * batch, qk, v)
            flops = Attention(seq, heads, qk, v, backward=True).products_of_backward
            times = (1e3 * float(row["forward_ms"]) / us, 1e3 * float(row["backward_ms"]) / us / flops)
            points.append((row["gpu"], int(qk > v), seq, *(f"{each:.3f}" for each in times)))
    writer.writerows(sorted(points))
    return out.getvalue()


def _expert_terms(rows: list[Cells], dtype: str) -> tuple[Numbers, Numbers]:
    """Bytes of weights and of copies, and FLOPs, of each row, as experts_us has them; us."""
    import numpy as np

    names = ("num_tokens", "topk", "moe_ep_size", "num_experts", "hidden_size", "inter_size", "moe_tp_size", "latency")
    tokens, topk, ep, experts, hidden, inner, tp, ms = (np.array([row[name] for row in rows], float) for name in names)
    pairs, weights = np.maximum(1, tokens * topk / ep), 3 * hidden * inner / tp
    read = WEIGHT_BYTES[dtype] * weights * np.minimum(experts / ep, pairs)
    return np.stack([read, 2 * pairs * weights, 2 * tokens * topk * hidden]), 1e3 * ms


def fitted(tables: Mapping[str, list[Cells]], gpu: str, dtype: str) -> tuple[ExpertRates, float, float]:
    """The figures with the least mean error of the logarithm, each table as much, by SAMPLE of its rows at random; the
    median and the 90th percentile of the errors in %.
    """
    import numpy as np
    from scipy.optimize import minimize

    terms, times, share = [], [], []
    for _, rows in sorted(tables.items()):
        its, us = _expert_terms(rows, dtype)
        drawn = np.random.RandomState(0).choice(len(us), min(SAMPLE, len(us)), replace=False)
        terms.append(its[:, drawn])
        times.append(us[drawn])
        share.append(np.full(len(drawn), 1 / len(drawn) / len(tables)))
    its, us, weight = np.concatenate(terms, 1), np.concatenate(times), np.concatenate(share)

    def predicted(logarithms: Numbers) -> Numbers:
        read, computed, copied, least = np.exp(logarithms)
        result: Numbers = its[0] / read + its[1] / computed + copied * its[2] + least
        return result

    machine = machines()[gpu]
    memory = machine.memory_GBps * 1e3
    start = np.log([0.7 * memory, 0.4 * machine.peak_tflops(dtype) * 1e6, 3 / memory, 30])
    found = minimize(
        lambda at: np.sum(weight * np.abs(np.log(predicted(at) / us))), start, method="Nelder-Mead",
        options={"maxiter": 1500, "xatol": 1e-3, "fatol": 1e-5},
    )  # fmt: skip
    read, computed, copied, least = np.exp(found.x)
    wrong = np.abs(predicted(found.x) / us - 1)
    order = np.argsort(wrong)
    middle, most = (100 * wrong[order][np.searchsorted(np.cumsum(weight[order]), part)] for part in (0.5, 0.9))
    return ExpertRates(least, read / 1e3, computed / 1e6, 1 / copied / 1e3), middle, most


def experts_text() -> str:
    """experts.csv."""
    lines = [f"gpu,dtype,{','.join(ExpertRates._fields)},median,p90"]
    for gpu in GPUS:
        tables: dict[str, dict[str, list[Cells]]] = defaultdict(lambda: defaultdict(list))
        for file in _files(gpu, "experts"):
            for row in _rows(file):
                if row["distribution"] == "balanced" and row["moe_dtype"] in EXPERT_TYPES:
                    tables[EXPERT_TYPES[row["moe_dtype"]]][file.parts[-3] + row["moe_dtype"]].append(row)
        for dtype in sorted(tables):
            rates, middle, most = fitted(tables[dtype], gpu, dtype)
            figures = (f"{rates.us:.3g}", *(f"{each:.4g}" for each in rates[1:]), f"{middle:.1f}", f"{most:.1f}")
            lines.append(f"{gpu},{dtype},{','.join(figures)}")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the tables."""
    text = kernels_text()
    DATA.write_bytes(lzma.compress(text.encode()))
    EXPERTS.write_text(experts_text(), encoding="utf-8")
    DATA.with_name("attention.csv").write_text(attention_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
