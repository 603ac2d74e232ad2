"""Makes default file names: readable, and different for different workloads."""

import hashlib
import json
import re
from pathlib import Path

from workloads.job.parameters import DEFAULTS, FRAMEWORK_ONLY, TRAINING, WorkloadArgs

CSV_FOLDER = Path("results/mocked_workload")
SIMAI_FOLDER = Path("results/workload")
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._+-]+")
MODEL_LENGTH = 60
NO_WORKLOAD = ("workload_only", "enable_visual")


def default_path(args: WorkloadArgs, target: str, dialect: str) -> Path:
    """The path of a workload without --output: the folders that AICB uses, and a descriptive name.

    The main sizes are readable; the digest over all parameters distinguishes any two workloads.
    """
    name = args.frame.lower()
    if args.frame == "DeepSpeed":
        name += f"_stage{args.stage}"
    model = NOT_IN_A_NAME.sub("_", args.model_name or "model").strip("_")[:MODEL_LENGTH]
    gpu = f"-{NOT_IN_A_NAME.sub('_', args.gpu_type)}" if target == "simai" and args.gpu_type else ""
    parts = [f"{name}{gpu}-{model}", f"ws{args.world_size}", *_sizes(args), dialect, _digest(args, target, dialect)]
    stem = "-".join(parts)
    return SIMAI_FOLDER / f"{stem}.txt" if target == "simai" else CSV_FOLDER / f"{stem}_workload.csv"


def _sizes(args: WorkloadArgs) -> list[str]:
    if args.frame == "collective_test":
        return [args.test_comm, f"from{args.begin_size}", f"to{args.end_size}", f"iter{args.iter_num}"]
    sizes = [f"gbs{args.global_batch}", f"mbs{args.micro_batch}", f"ga{args.num_microbatches}", f"seq{args.seq_length}"]
    if args.frame != "DeepSpeed":
        parallel = [
            f"tp{args.tensor_model_parallel_size}",
            f"pp{args.pipeline_model_parallel}",
            f"ep{args.expert_model_parallel_size}",
        ]
        sizes = [*parallel, *(["sp"] if args.enable_sequence_parallel else []), *sizes]
    if args.phase != TRAINING:
        sizes = [args.phase, *sizes]
    computed = ["aiob"] if args.comp_filepath else ["comp"] if args.computes else []
    return [*sizes, f"layers{args.num_layers}", f"epochs{args.epoch_num}", *computed]


def _counts(name: str, value: object) -> bool:
    """Whether a parameter is part of the name: those that AICB lacks only where they are set."""
    return name not in NO_WORKLOAD and (name not in FRAMEWORK_ONLY or value != getattr(DEFAULTS, name))


def _digest(args: WorkloadArgs, target: str, dialect: str) -> str:
    """Eight hex digits over everything that can distinguish two workloads, including the content of an AIOB file."""
    values = {name: value for name, value in args.to_dict().items() if _counts(name, value)}
    if args.comp_filepath and Path(args.comp_filepath).is_file():
        values["comp_filepath"] = Path(args.comp_filepath).read_text(encoding="utf-8", errors="replace")
    text = json.dumps([values, target, dialect], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
