"""Reads jobs: rows of a CSV in the columns of public measurements, or one job in JSON or YAML, or a preset.

A column that is not there, or empty, has a usual value of such models. All mistakes of all rows are told at once.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from common.errors import InputProblems, MistakeList, input_problem
from common.yaml_file import file_text, parsed_yaml
from simulation.predict import hugging_face
from simulation.predict.kernels import PRODUCT, grids
from simulation.predict.machine import Machine, machine_of, machines, memory_of_name, other_part
from workloads.dialects.framework import presets
from workloads.job.rules import sequence_step
from workloads.job.training_job import LatentAttention, TrainingJob

LARGEST = 1 << 40
_SEPARATORS = ",;\t"
"""Of cells: where a comma stands in numbers, spreadsheets write semicolons."""
_TYPO = 0.85
"""How alike a column is to one of ours before it is taken for a slip of the pen."""
BF16, FP8, FP4 = "bf16", "fp8", "nvfp4"
RECOMPUTE = ("none", "selective", "full")
VALUE_WORDS = {
    "overlap": {"none": 0, "0": 0, **dict.fromkeys(("1", "on", "all", "tp", "cp", "ep", "dp", "pp", "p2p"), 1)},
    "grad_dtype": {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2},
    "ce_fusion": {"none": 0, "no": 0, "not": 0, "0": 0, "1": 1, "on": 1, "te": 1, "native": 1},
}  # fmt: skip
"""Values by the first word of a cell; the words after it are a remark, as in "none (TP, DP)"."""
CP_WAYS = ("a2a", "p2p", "allgather", "a2a+p2p")
MODEL = (
    "hidden", "ffn", "layers", "heads", "kv_heads", "head_dim", "vocab", "swiglu", "experts", "topk", "moe_ffn",
    "shared_ffn", "first_dense_layers", "mla", "q_lora", "kv_lora", "qk_nope", "qk_rope", "v_dim", "tied_embeddings",
    "sliding_window", "full_attention_every", "max_position_embeddings",
)  # fmt: skip
LAYOUT = (
    "gpus", "gpus_per_node", "seq", "mbs", "micro_batches", "gbs", "tp", "sp", "pp", "vpp", "cp", "dp", "ep", "fsdp",
    "ddp", "distributed_optimizer", "power_limit_W", "compile",
)  # fmt: skip
WORDS = (
    "name", "gpu", "precision", "cp_comm", "recompute", "grad_dtype", "overlap", "ce_fusion", "framework",
    "attention",
)  # fmt: skip
KEYS = (*MODEL, *LAYOUT, *WORDS)
MEASURED = (
    "family", "measured_ms", "measured_alloc_gib", "measured_reserved_gib",
    "measured_alloc_gib_by_rank", "measured_tokens_s_gpu", "measured_model_tflops_gpu", "other_predicted_ms",
    "other_predicted_gib", "source", "note",
)  # fmt: skip
_MEASURED_NUMBERS = tuple(key for key in MEASURED if key.startswith(("measured_", "other_")))
MISSING = "is missing"
_NEEDED = ("gpu", "gpus", "hidden", "layers", "heads", "vocab", "seq")
FLAGS = {"swiglu", "sp", "mla", "distributed_optimizer", "tied_embeddings", "compile", "ddp"}
_MAY_BE_ZERO = {
    *FLAGS, "experts", "topk", "moe_ffn", "shared_ffn", "first_dense_layers", "q_lora", "ffn", "qk_rope", "fsdp",
    "sliding_window", "full_attention_every", "max_position_embeddings",
}  # fmt: skip


def read_rows(path: Path, flag: str = "--rows") -> list[dict[str, str]]:
    """The rows of a CSV that an option names, as texts. Columns that are nobody's (`carried`) stay in them.

    Raises:
        InputProblems: it cannot be read, has no rows, columns that are twice or nearly one of ours, or measured values
            that are no numbers above 0; all mistakes.
    """
    text = file_text(path, flag).removeprefix("\ufeff")
    separator = max(_SEPARATORS, key=text.partition("\n")[0].count)
    table = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    mistakes = MistakeList()
    try:
        header = [cell.strip() for cell in next(table, [])]
        _check_keys(header, str(path), mistakes, lenient=True)
        for key in {key for key in header if header.count(key) > 1}:
            mistakes.add(f"{path}: line 1", key, "this column is there twice")
        rows = []
        for cells in table:
            if len(cells) != len(header) and cells:
                mistakes.add(f"{path}: line {table.line_num}", None, f"{len(cells)} cells under {len(header)} columns")
            elif cells:
                rows.append({**dict(zip(header, cells, strict=True)), "": f"{path}: line {table.line_num}"})
    except csv.Error as error:
        raise input_problem(f"{path}: line {table.line_num}", None, str(error)) from None
    if not rows:
        mistakes.add(str(path), None, "has no row under its header")
    for row in rows:
        _check_measured(row, separator, mistakes)
    mistakes.check()
    return rows


def _check_measured(row: dict[str, str], separator: str, mistakes: MistakeList) -> None:
    """Measured values of a row, whose decimal sign is a comma where cells are not between commas."""
    for key in _MEASURED_NUMBERS:
        if text := (row.get(key) or "").strip():
            if separator != ",":
                row[key] = text = text.replace(",", ".")
            _check_positive(text, f"{row['']}: {key}", mistakes)


def carried(rows: list[dict[str, str]]) -> list[str]:
    """The columns that have no effect and come back as they are."""
    return [key for key in rows[0] if key and key not in KEYS and key not in MEASURED]


def _check_positive(text: str, where: str, mistakes: MistakeList) -> None:
    """One number above 0, or several with blanks between."""
    try:
        holds = all(0 < float(word) < LARGEST for word in text.split())
    except ValueError:
        holds = False
    if not holds:
        mistakes.add(where, text[:40], "must be a number above 0, or empty")


def _check_keys(keys: list[str], where: str, mistakes: MistakeList, *, lenient: bool = False) -> None:
    """Unknown keys are mistakes; if `lenient`, only those that are nearly a known one."""
    known = (*KEYS, *MEASURED) if lenient else KEYS
    for key in keys:
        near = [] if key in known else get_close_matches(key.lower(), known, 1, _TYPO if lenient else 0.6)
        if key not in known and (near or not lenient):
            mistakes.add(where, repr(key)[:80], f"is no column{f'; did you mean {near[0]}?' if near else ''}")


def jobs_of(rows: list[dict[str, str]]) -> list[TrainingJob]:
    """The jobs of rows.

    Raises:
        InputProblems: every mistake of every row.
    """
    mistakes, jobs = MistakeList(), []
    for row in rows:
        try:
            jobs.append(job_of(row, row[""]))
        except InputProblems as problems:
            mistakes.mistakes += problems.problems
    mistakes.check()
    return jobs


def read_job(path: Path) -> dict[str, str]:
    """The values of a job file: JSON, or YAML by its name; or those of a model's config.json of Hugging Face.

    Raises:
        InputProblems: it cannot be read, is no mapping, or has unknown keys.
    """
    found, mistakes = _mapping(path), MistakeList()
    if hugging_face.is_config(found):
        hugging_face.check_whole(found, str(path), mistakes)
        found = hugging_face.columns(found, str(path), mistakes)
    _check_keys([str(key) for key in found], str(path), mistakes)
    mistakes.check()
    return {str(key): _as_text(value) for key, value in found.items()}


def written_columns(path: Path) -> list[str]:
    """The columns that a job file itself names: none where it is a config.json of Hugging Face, which has other words.

    Raises:
        InputProblems: it cannot be read, or is no mapping.
    """
    found = _mapping(path)
    return [] if hugging_face.is_config(found) else [str(key) for key in found]


def _mapping(path: Path) -> Mapping[str, object]:
    text = file_text(path, "--job")
    if path.suffix.lower() in (".yaml", ".yml"):
        found = parsed_yaml(text, path, "--job")
    else:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise input_problem(str(path), None, f"is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise input_problem(str(path), None, "must be a mapping of keys such as hidden, layers and tp to values")
    return found


def _as_text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else "" if value is None else str(value)


def preset(name: str) -> dict[str, str]:
    """The model of a preset of the dialect framework, in our columns.

    Raises:
        InputProblems: there is none of this name.
    """
    try:
        values: Mapping[str, Any] = presets.values(name)
    except ValueError as error:
        raise input_problem("--model", name, str(error)) from None
    hidden, heads = values["hidden_size"], values["num_attention_heads"]
    gated = values.get("swiglu", False)
    found: dict[str, object] = {
        "name": values["model_name"], "hidden": hidden, "ffn": values.get("ffn_hidden_size", 4 * hidden),
        "layers": values["num_layers"], "heads": heads, "kv_heads": values.get("num_query_groups", heads),
        "head_dim": values.get("kv_channels", hidden // heads), "vocab": values["vocab_size"], "swiglu": int(gated),
        "seq": values["seq_length"], "experts": values.get("num_experts", 0), "topk": values.get("moe_router_topk", 0),
        "shared_ffn": values.get("moe_shared_expert_size", 0),
        "first_dense_layers": values.get("moe_first_dense_layers", 0),
        "tied_embeddings": int(not values.get("untie_embeddings", False)),
        "max_position_embeddings": values["max_position_embeddings"],
    }  # fmt: skip
    if values.get("moe_enable"):
        found["moe_ffn"] = values.get("moe_ffn_hidden_size", found["ffn"])
    if values.get("multi_latent_attention"):
        found |= {
            "mla": 1, "q_lora": values["q_lora_rank"], "kv_lora": values["kv_lora_rank"],
            "qk_nope": values["qk_nope_dim"], "qk_rope": values["qk_rope_dim"], "v_dim": values["v_head_dim"],
        }  # fmt: skip
    return {key: str(value) for key, value in found.items()}


def job_of(row: Mapping[str, str], where: str) -> TrainingJob:
    """The job of one row.

    Raises:
        InputProblems: all mistakes of the row, with `where` it stands.
    """
    mistakes = MistakeList()
    numbers = {key: _number(row, key, where, mistakes) for key in (*MODEL, *LAYOUT)}
    for key in _NEEDED:
        if not (row.get(key) or "").strip():
            mistakes.add(f"{where}: {key}", None, MISSING)
    machine, precision = _device(row, where, mistakes)
    _check_words(row, where, mistakes)
    mistakes.check()
    assert machine is not None
    given = {"gpus_per_node": machine.server} | {key: value for key, value in numbers.items() if value is not None}
    if machine.servers_of(given["gpus_per_node"]) is None:
        mistakes.add(
            f"{where}: gpus_per_node", given["gpus_per_node"], f"must be {machine.allowed_servers()} for {machine.gpu}"
        )
    if given.get("ddp") and given.get("fsdp"):
        mistakes.add(f"{where}: ddp", 1, f"each rank holds all weights: must be 0 with fsdp {given['fsdp']}")
    job = _assembled(row, given, machine.gpu, precision)
    _check_layout(job, numbers.get("gbs"), where, mistakes)
    mistakes.check()
    return job


def _device(row: Mapping[str, str], where: str, mistakes: MistakeList) -> tuple[Machine | None, str]:
    """The GPU, and the precision; what cannot be predicted is a mistake."""
    name = row.get("gpu") or ""
    machine = machine_of(name)
    if name and machine is None:
        mistakes.add(f"{where}: gpu", name, f"is none of {', '.join(machines())}")
    elif machine and (other := other_part(name)):
        mistakes.add(f"{where}: gpu", name, f"{other} is another part than the {machine.gpu} that was measured")
    precision = precision_of(row, where, mistakes)
    if machine and precision and (PRODUCT, machine.gpu, precision) not in grids():
        known = sorted(dtype for kernel, gpu, dtype in grids() if kernel == PRODUCT and gpu == machine.gpu)
        mistakes.add(f"{where}: precision", row.get("precision"), f"{machine.gpu} was measured in {', '.join(known)}")
    return machine, precision or BF16


def _check_words(row: Mapping[str, str], where: str, mistakes: MistakeList) -> None:
    words = {
        "recompute": (_first_word(_recompute(row)), RECOMPUTE),
        "cp_comm": ((row.get("cp_comm") or "p2p").strip(), CP_WAYS),
    }
    words |= {key: (_first_word(row.get(key)), tuple(allowed)) for key, allowed in VALUE_WORDS.items() if row.get(key)}
    for key, (word, allowed) in words.items():
        if word not in allowed and (row.get(key) or "").strip():
            mistakes.add(f"{where}: {key}", row.get(key), f"is none of {', '.join(allowed)}")


def _first_word(cell: str | None) -> str:
    match = re.match(r"[a-z0-9]+", (cell or "").strip().lower())
    return match[0] if match else ""


def _number(row: Mapping[str, str], key: str, where: str, mistakes: MistakeList) -> int | None:
    text = (row.get(key) or "").strip()
    if not text:
        return None
    least = 0 if key in _MAY_BE_ZERO else 1
    most = 1 if key in FLAGS else LARGEST
    text = text.removesuffix(".0")  # as tables of floating-point numbers have it
    if not (text.isascii() and text.isdigit() and len(text) < 14 and least <= int(text) <= most):
        mistakes.add(f"{where}: {key}", text[:40], f"must be a whole number from {least} to {most}")
        return None
    return int(text)


def precision_of(row: Mapping[str, str], where: str, mistakes: MistakeList) -> str | None:
    """The precision that a row names in any spelling; None: none that is known, which is a mistake."""
    text = (row.get("precision") or BF16).strip().lower()
    for word, kind in (("fp4", FP4), ("fp8", FP8), ("float8", FP8), ("bf16", BF16), ("fp16", BF16)):
        if word in text:
            return kind
    mistakes.add(f"{where}: precision", text[:40], "is none of bf16, fp8, nvfp4")
    return None


def _assembled(row: Mapping[str, str], given: dict[str, int], gpu: str, precision: str) -> TrainingJob:
    def value(key: str, otherwise: int) -> int:
        return given.get(key, otherwise)

    def said(key: str, otherwise: str) -> int:
        return VALUE_WORDS[key][_first_word(row.get(key)) or otherwise]

    heads, hidden = given["heads"], given["hidden"]
    tp, pp, cp = value("tp", 1), value("pp", 1), value("cp", 1)
    dp = value("dp", max(1, given["gpus"] // (tp * pp * cp)))
    mbs, fewest = value("mbs", 1), pp if value("vpp", 1) > 1 else 1
    batches = value("micro_batches", max(1, given["gbs"] // (dp * mbs)) if "gbs" in given else fewest)
    latent = None
    if value("mla", 0):
        latent = LatentAttention(
            q_lora=value("q_lora", 0), kv_lora=value("kv_lora", 512), nope=value("qk_nope", 128),
            rope=value("qk_rope", 64), v=value("v_dim", 128),
        )  # fmt: skip
    return TrainingJob(
        name=row.get("name") or "job", gpu=gpu, gpus=given["gpus"], gpus_per_node=given["gpus_per_node"],
        precision=precision, hidden=hidden, ffn=value("ffn", 4 * hidden), layers=given["layers"], heads=heads,
        kv_heads=value("kv_heads", heads), head_dim=value("head_dim", max(1, hidden // heads)), vocab=given["vocab"],
        gated=bool(value("swiglu", 1)), seq=given["seq"], mbs=mbs, micro_batches=batches, tp=tp,
        sp=bool(value("sp", int(tp > 1))), pp=pp, vpp=value("vpp", 1), cp=cp,
        cp_comm=(row.get("cp_comm") or "p2p").strip(), dp=dp, ep=value("ep", 1),
        fsdp=1 if value("ddp", 0) else dp * cp if value("fsdp", 0) == 1 else value("fsdp", 0),
        experts=value("experts", 0), topk=value("topk", 0), moe_ffn=value("moe_ffn", 0),
        shared_ffn=value("shared_ffn", 0), dense_layers=value("first_dense_layers", 0), latent=latent,
        recompute=_recompute(row), distributed_optimizer=bool(value("distributed_optimizer", 1)),
        grad_bytes=said("grad_dtype", "fp32"), overlap=bool(said("overlap", "1")),
        fused_loss=bool(said("ce_fusion", "1")),
        tied=bool(value("tied_embeddings", 0)), power_limit=value("power_limit_W", 0),
        window=value("sliding_window", 0), full_every=value("full_attention_every", 0),
        positions=value("max_position_embeddings", 0),
        memory_GBps=memory_of_name(row.get("gpu") or ""), compiled=bool(value("compile", 1)),
        scaling=_scaling(row), megatron="megatron" in (row.get("framework") or "").lower(),
        cudnn="cudnn" in (row.get("attention") or "").lower(),
    )  # fmt: skip


_SCALINGS = (("rowwise", ("rowwise",)), ("mxfp8", ("mx",)), ("delayed", ("delayed", "-ds")))


def _scaling(row: Mapping[str, str]) -> str:
    """The scales that a precision such as "FP8-MX" names; else those of tensors at present."""
    text = (row.get("precision") or "").lower()
    return next((name for name, words in _SCALINGS if any(word in text for word in words)), "tensorwise")


def _recompute(row: Mapping[str, str]) -> str:
    text = (row.get("recompute") or "none").strip().lower()
    if text.startswith("selective"):
        return text
    return "none" if text.startswith("see") else _first_word(text) or text


_RULES: tuple[tuple[str, Callable[[TrainingJob], bool], str], ...] = (
    ("gpus", lambda j: j.tp * j.pp * j.cp * j.dp == j.gpus, "must be tp x pp x cp x dp"),
    ("heads", lambda j: j.heads % j.tp == 0, "must be a multiple of tp"),
    ("kv_heads", lambda j: j.heads % j.kv_heads == 0, "must divide heads"),
    ("vpp", lambda j: j.vpp == 1 or j.pp > 1, "needs pp above 1"),
    ("micro_batches", lambda j: j.vpp == 1 or j.micro_batches % j.pp == 0, "must divide by pp with vpp (see gbs)"),
    ("layers", lambda j: j.layers >= j.pp * j.vpp - 2, "must be at least one a chunk of the pipeline (pp x vpp)"),
    ("experts", lambda j: not j.experts or j.experts % j.ep == 0, "must be a multiple of ep"),
    ("ep", lambda j: j.ep == 1 or bool(j.experts), "needs experts"),
    ("ep", lambda j: j.ep == 1 or not j.replicated, "must be 1 with ddp, whose ranks hold all experts"),
    ("ep", lambda j: (j.tp * j.cp * j.dp) % j.ep == 0, "must divide tp x cp x dp"),
    ("topk", lambda j: not j.experts or 1 <= j.topk <= j.experts, "must be from 1 to experts"),
    ("moe_ffn", lambda j: not j.experts or j.moe_ffn > 0, "is missing: the inner width of an expert"),
    ("first_dense_layers", lambda j: j.dense_layers <= j.layers, "must be at most layers"),
    ("fsdp", lambda j: not j.experts or j.fsdp < 2 or j.fsdp * j.tp % j.ep == 0,
     "times tp must be a multiple of ep: ranks with the same experts divide these"),
    ("fsdp", lambda j: not j.fsdp or (j.dp * j.cp) % j.fsdp == 0, "must be 0, 1 (all ranks) or divide dp x cp (HSDP)"),
    ("seq", lambda j: j.seq % sequence_step(j.tp, j.cp, split=j.sp) == 0,
     "must be a multiple of tp with sequence parallelism, times 2 x cp with context parallelism"),
    ("sliding_window", lambda j: j.full_share == 1 or j.cp == 1, "must be 0 with cp, whose ranks see all tokens here"),
    ("sliding_window", lambda j: not j.window or j.latent is None, "must be 0 with mla: no such kernel is known"),
    ("full_attention_every", lambda j: not j.full_every or j.window > 0, "needs sliding_window"),
)  # fmt: skip


_FIELDS = {"first_dense_layers": "dense_layers", "sliding_window": "window", "full_attention_every": "full_every"}


def _check_layout(job: TrainingJob, gbs: int | None, where: str, mistakes: MistakeList) -> None:
    for key, holds, allowed in _RULES:
        if not holds(job):
            mistakes.add(f"{where}: {key}", getattr(job, _FIELDS.get(key, key)), allowed)
    made = job.dp * job.mbs * job.micro_batches
    if gbs is not None and gbs != made:
        mistakes.add(f"{where}: gbs", gbs, f"must be dp x mbs x micro_batches, here {made}")
