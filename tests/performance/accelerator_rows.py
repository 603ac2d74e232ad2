"""Rows of docs/data/measurements in the order of their worth on a borrowed accelerator, and what fits a device."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vendors
from protocol.case_config import CaseConfig, load_case_config
from protocol.config_file import config_file, read_config_file
from tests.training.benchmarks.driver.training.tiny import EVERY, benchmark_of
from training.benchmarks.catalog import benchmark
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED
from training.benchmarks.driver.training.layout.stage_estimate import bytes_of_ranks
from training.benchmarks.driver.training.settings.settings import ENGINE, FLASH_ATTENTION
from vendors.datasheets import datasheet

FOLDER = Path(__file__).with_name("accelerators")
_FILES_HARDWARE = "H200"  # for which the files of FOLDER are written
AICB = "python -m workloads"
_CPU = "cpu"
_TARGETS = ("target_loss", "target_mlm_accuracy", "target_accuracy", "target_embedding_average")
_TRAINED_ON_CPU: dict[str, Any] = {"max_steps": 4, **dict.fromkeys(_TARGETS)}
_AIOB_ON_CPU = (
    f"{AICB} aiob --dialect aicb --hidden_size 64 --num_layers 1 --num_attention_heads 4 --seq_length 32 --world_size 1"
    " --global_batch 1 --vocab_size 64 --precision fp32 --iterations 2 --database {out}/cpu.db --output {out}/cpu.txt"
)
_SMALL_ON_CPU: dict[str, dict[str, Any]] = {
    "base": {"copy_bytes": 1 << 20, "iterations": 2, "matmul_size": 128},
    "network": {"sizes": "8..64K x64", "iterations": 2},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One command. begins: minutes of a loan after which it is worth its turn; minutes: that it takes, an estimate.

    marks: what a line of the table holds in its column of commands (or `what`) if the command measures it. file: of
    FOLDER. commands: what runs instead, of which `{out}` is a folder. on_cpu: commands of the rehearsal.
    """

    name: str
    begins: int
    minutes: float
    table: str
    marks: str
    file: str = ""
    commands: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()
    devices: int = 1


def _aiob(size: int, minutes: float) -> Row:
    model = f"{size}b"
    argv = f"{AICB} aiob --dialect aicb -m {size} --world_size 8 --seq_length 2048 --database {{out}}/gpt.db"
    return Row(
        name=f"aiob_{model}",
        begins=45,
        minutes=minutes,
        table="compute-times.csv",
        marks=f"AIOB of GPT {model.upper()}",
        commands=tuple(f"{argv} --tp {tp} --output {{out}}/gpt{model}_tp{tp}.txt" for tp in (1, 2, 4, 8)),
        on_cpu=(_AIOB_ON_CPU,),
    )


_SIDE_BY_SIDE = f"{AICB} aiob --dialect aicb --world_size 8 --seq_length 2048"
_KERNELS = Row(
    name="kernels",
    begins=45,
    minutes=6,
    table="compute-times.csv",
    marks="kernels: Transformer Engine",
    commands=(
        *(
            f"{_SIDE_BY_SIDE} -m 13 --attention {name} --output {{out}}/{name}.txt"
            for name in ("sdpa", FLASH_ATTENTION, ENGINE)
        ),
        f"{_SIDE_BY_SIDE} -m deepseek16 --ep 8 --sp --output {{out}}/mla.txt",
        f"{_SIDE_BY_SIDE} -m moe --num_experts 8 --moe_router_topk 2 --tp 1 --ep 8 --output {{out}}/experts.txt",
    ),
    on_cpu=(_AIOB_ON_CPU,),
)


def _run(file: str, begins: int, minutes: float, devices: int = 1) -> Row:
    name = file.removesuffix(".py")
    return Row(
        name=name, begins=begins, minutes=minutes, table="benchmarks.csv", marks=f"`{file}`", file=file, devices=devices
    )


ROWS = (
    Row(
        name="environment",
        begins=10,
        minutes=0.5,
        table="benchmarks.csv",
        marks="any of them",
        commands=("python -m monitors --log_dir {out} --vendor {vendor} --max_seconds 20",),
        on_cpu=("python -m monitors --log_dir {out} --vendor {vendor} --max_seconds 2",),
    ),
    _run("base.py", 10, 1.5),
    _run("llama_tiny.py", 10, 1.5),
    _run("bert.py", 10, 2),
    _run("network.py", 10, 1),
    _run("llama.py", 30, 8),
    _run("llama_fp8.py", 30, 6),
    _run("glm.py", 30, 3),
    _run("cpm.py", 30, 4),
    _run("predicted.py", 45, 5),
    _run("llama_layers.py", 45, 3),
    _run("mixtral_tiny.py", 45, 4),
    _aiob(7, 3),
    _aiob(13, 4),
    _aiob(175, 4),
    _KERNELS,
    _run("base_1x8.py", 45, 4, devices=8),
    _run("network_1x8.py", 45, 4, devices=8),
    _run("llama_1x8.py", 45, 8, devices=8),
    _run("llama_divided_1x8.py", 45, 6, devices=8),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """What the rows are measured on: the driver's name, bytes of memory, how many, the driver's version."""

    vendor: str
    name: str
    memory_bytes: int
    count: int
    driver: str

    @property
    def hardware(self) -> str:
        """As the names of configs have it: of the datasheet's name the first word; of the host's processors CPU."""
        sheet = datasheet(self.name)
        return "CPU" if self.vendor == _CPU else sheet.name.split()[0] if sheet is not None else ""

    @property
    def is_rehearsal(self) -> bool:
        return self.vendor == _CPU


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A case of a row on the device: its settings as test_conf.py has them, and its resolved config."""

    name: str
    settings: Mapping[str, Any]
    config: CaseConfig = field(repr=False)


def cases_of(row: Row, device: Device) -> list[Case]:
    """The cases of a row's file, for the device in place of the one for which the file is written.

    Raises:
        ValueError: the row does not fit the device; the message says why.
    """
    if device.count < row.devices:
        raise ValueError(f"needs {row.devices} devices, {device.count} are here")
    if not device.hardware:
        raise ValueError(f"no datasheet names {device.name!r}, so that no config is known to be for it")
    written = read_config_file(FOLDER / row.file)
    listed: Any = written["CASES"]
    listing: dict[str, Any] = (
        {name: written[name] for name in listed} if isinstance(listed, list) else dict(map(_of_key, listed))
    )
    cases = [_case(name, settings, device) for name, settings in listing.items()]
    if device.is_rehearsal:
        return cases[:1]  # the others differ in kernels that the host does not have
    for case in cases:
        needed = estimate(case, device)
        if needed is not None and needed * (1 + RESERVED) > device.memory_bytes:
            wanted, there = needed * (1 + RESERVED) / 1e9, device.memory_bytes / 1e9
            raise ValueError(f"{case.name} needs {wanted:.0f} GB, the device has {there:.0f} GB")
    return cases


def estimate(case: Case, device: Device, *, allocated: bool = False) -> float | None:
    """Bytes of a training step by the memory estimate, or those `allocated` of it; None for what is no training."""
    model = str(case.settings["model"])
    if model not in EVERY:
        return None
    config = EVERY[model][1].model_validate(case.config.model_dump())
    nproc, on_cpu = int(case.settings["nproc"]), device.is_rehearsal
    return max(bytes_of_ranks(benchmark_of(model), config, nproc, on_cpu=on_cpu, allocated=allocated))


def missing_library(case: Case) -> str:
    """Why the case is left out, as its library is not installed; empty where it is there, or none is asked for."""
    return _missing(
        ("flash_attn", getattr(case.config, "attention", "") == FLASH_ATTENTION),
        ("torchao", getattr(case.config, "fp8", None) is not None),
        (ENGINE, getattr(case.config, "layers", "") == ENGINE),
    )


def missing_kernel(command: str) -> str:
    """Why a row's command is left out, as the library of its `--attention` is not installed; empty if it is."""
    wished = command.partition(" --attention ")[2].partition(" ")[0]
    return _missing(("flash_attn", wished == FLASH_ATTENTION), (ENGINE, wished == ENGINE))


def _missing(*wishes: tuple[str, bool]) -> str:
    for package, is_wanted in wishes:
        if is_wanted and importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    return ""


def _of_key(key: str) -> tuple[str, dict[str, Any]]:
    model, framework, hardware, nnodes, nproc, _ = key.split(":")
    config = f"config_{hardware}x{nnodes}x{nproc}"
    counts = {"nnodes": int(nnodes), "nproc": int(nproc), "repeat": 1}
    return model.upper(), {"model": model, "framework": framework, "config": config, **counts}


def _case(name: str, written: Mapping[str, Any], device: Device) -> Case:
    settings = dict(written)
    model = settings["model"]
    if device.is_rehearsal:
        small = _SMALL_ON_CPU.get(model, _TRAINED_ON_CPU)
        config_class = benchmark(model, settings["framework"]).config_class
        known = {key: value for key, value in small.items() if key in config_class.model_fields}
        settings |= {"config": "config_CPUx1x2", "nproc": 2, "overrides": known}
    else:
        settings["config"] = settings["config"].replace(_FILES_HARDWARE, device.hardware)
    found = benchmark(model, settings["framework"])
    folder = vendors.case_dir(device.vendor, found.model, found.framework) / "config"
    path = config_file(folder, settings["config"])
    if not path.is_file():
        raise ValueError(f"vendor {device.vendor} has no {settings['config']} of {model}")
    config = load_case_config(found.config_class, path, settings.get("overrides", {}))
    return Case(name=name, settings=settings, config=config)
