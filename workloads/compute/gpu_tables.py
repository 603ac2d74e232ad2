"""Reads measured kernels of GPUs from the parquet tables of the package aiconfigurator-core (Apache-2.0, NVIDIA).

`aiconfigurator_core/systems/data/<gpu>/`: gemm_perf, context_attention_perf, context_mla_perf and
generation_attention_perf of three frameworks, ms of bursts. Rows in types that the database does not know, with a
window, a prefix or a cache of another type are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.errors import SimulationError
from workloads.compute.measurement import ComputeDataError, ComputeTime, checked

SOURCE = "aiconfigurator-core, Apache-2.0, NVIDIA"
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "int8": "int8"}
MOST_ROWS = 1_000_000
Cells = Mapping[str, Any]
INSTALL = "reading parquet needs pyarrow: pip install --require-hashes --no-deps -r requirements/analysis.lock"

EXTRA = "gpu-tables"
"""The first part of a name, gpu-tables/<gpu>, for the tables of the package where it is installed."""
PACKAGE = "aiconfigurator_core"
TABLES = tuple(f"{name}_perf.parquet" for name in ("gemm", "context_attention", "generation_attention", "context_mla"))


def installed(name: Path) -> list[Path]:
    """The tables of products and attention of a GPU in the installed package, by gpu-tables/<gpu>.

    Raises:
        SimulationError: the package is not installed.
        ComputeDataError: it has no such GPU.
    """
    package = find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise SimulationError(
            f"{name}: aiconfigurator-core is not installed: "
            "pip install --require-hashes --no-deps -r requirements/gpu-tables.lock"
        )
    data = Path(package.submodule_search_locations[0]) / "systems" / "data"
    found = sorted(path for path in (data / name.name).rglob("*.parquet") if path.name in TABLES)
    if name.parent != Path(EXTRA) or not found:
        known = ", ".join(sorted({path.parents[3].name for path in data.glob(f"*/*/*/*/{TABLES[0]}")}))
        raise ComputeDataError(f"{name}: is none of {EXTRA}/GPU, GPU one of {known or 'none'}")
    return found


def read(path: Path) -> list[ComputeTime]:
    """The measurements of a parquet table.

    Raises:
        SimulationError: pyarrow is not installed.
        ComputeDataError: the file is no such table.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise SimulationError(f"{path}: {INSTALL}") from None
    try:
        file = parquet.ParquetFile(path)
        kinds = [kind for kind in KINDS if kind <= set(file.schema_arrow.names)]
        if not kinds or file.metadata.num_rows > MOST_ROWS:
            raise ComputeDataError(
                f"{path}: is no table of products or attention of aiconfigurator-core, or of over {MOST_ROWS} rows"
            )
        table = file.read().to_pydict()
    except (OSError, ArrowException) as error:
        raise ComputeDataError(f"{path}: is no parquet table: {error}") from None
    rows = (dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True))
    return checked(path, _rows(rows, KINDS[kinds[0]]))


def _rows(rows: Iterator[dict[str, Any]], shape: Callable[[Cells], tuple[str, str, str] | None]) -> Iterator[list[Any]]:
    for cells in rows:
        found = shape(cells)
        if found is not None and found[2] in DTYPES:
            op, text, dtype = found
            versions = f"{cells['framework']} {cells['version']}"
            ns = cells["latency"] * 1e6
            yield [cells["device"], op, text, DTYPES[dtype], cells["kernel_source"], versions, ns, 0.0, 1, SOURCE]


def _product(cells: Cells) -> tuple[str, str, str]:
    return "gemm", f"m={cells['m']} k={cells['k']} n={cells['n']}", cells["gemm_dtype"]


def _attention(cells: Cells) -> tuple[str, str, str] | None:
    if (cells.get("window_size") or 0) > 0 or cells["kv_cache_dtype"] != cells["attn_dtype"]:
        return None
    heads, width = cells["num_heads"], cells["head_dim"]
    shared = f"heads={heads} groups={cells['num_key_value_heads'] or heads} qk={width} v={width}"
    batch, tokens, before = cells["batch_size"], cells["isl"], cells["step"] or 0
    if cells["op_name"].startswith("generation"):
        return "attention_decode", f"batch={batch} context={tokens + before} {shared}", cells["attn_dtype"]
    if before:
        return None
    return "attention", f"batch={batch} seq={tokens} {shared} causal=1", cells["attn_dtype"]


def _latent(cells: Cells) -> tuple[str, str, str] | None:
    """DeepSeek's attention of whole sequences: 128 and 64 elements of a head's queries and keys, 128 of its values."""
    if cells["step"] or cells["op_name"] != "mla_context" or cells["kv_cache_dtype"] != cells["mla_dtype"]:
        return None
    heads = cells["num_heads"]
    shape = f"batch={cells['batch_size']} seq={cells['isl']} heads={heads} groups={heads} qk=192 v=128 causal=1"
    return "attention", shape, cells["mla_dtype"]


KINDS: Mapping[frozenset[str], Callable[[Cells], tuple[str, str, str] | None]] = {
    frozenset({"device", "gemm_dtype", "m", "n", "k", "latency", "kernel_source", "framework", "version"}): _product,
    frozenset({
        "device", "op_name", "attn_dtype", "batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step",
        "kv_cache_dtype",
        "latency", "kernel_source", "framework", "version",
    }): _attention,
    frozenset({
        "device", "op_name", "mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step", "latency",
        "kernel_source", "framework", "version",
    }): _latent,
}  # fmt: skip
"""The reader of a row, by the columns of its table."""
