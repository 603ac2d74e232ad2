"""Chooses the kernels of a run: those that its settings name, or with `auto` the first that works here."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.launch import fused
from training.benchmarks.driver.training.model import fp8
from training.benchmarks.driver.training.settings.settings import AUTO, ENGINE, FLASH_ATTENTION, TORCH, TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.usage import UnusableSettingsError

_HALF = ("bf16", "fp16")
_FLASH_HEAD_SIZE = 256
_INDUCTOR = "inductor"
# Compiling the blocks takes about a minute: a shorter run is over before it has paid.
COMPILED_STEPS = 100
NONE = "none"
TIMED = "the faster"
"""The layers of a run whose ranks time them on their devices, when they have these (see contest)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The requested value, the value in use, and the reason."""

    asked: str
    used: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """A run's attention and optimizer, its blocks' compiler and layers, and the recipe of their products in FP8, if any
    (or NONE).
    """

    attention: Choice
    optimizer: Choice
    compilation: Choice
    layers: Choice
    fp8: Choice

    @property
    def compile_backend(self) -> str | None:
        """The backend of torch.compile, if any."""
        return None if self.compilation.used == NONE else self.compilation.used

    @property
    def fp8_recipe(self) -> str | None:
        """The recipe of the products in FP8, if any."""
        return None if self.fp8.used == NONE else self.fp8.used

    def record(self) -> dict[str, Any]:
        """The value for LAUNCH_TRAINING."""
        return asdict(self)


class Libraries:
    """Libraries and device of this rank; each is looked up once, when it is needed."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._found: dict[str, str | None] = {}

    def version(self, name: str) -> str | None:
        """Version of a library of fused kernels, "unusable: <why>" if it does not import, None if it is missing."""
        if name not in self._found:
            self._found.update(fused.detect((name,)))
        return self._found[name]

    def all(self) -> dict[str, str | None]:
        """Versions of all libraries, for the record."""
        return {name: self.version(name) for name in fused.LIBRARIES}

    def has_triton(self) -> bool:
        """Whether the package triton is installed."""
        return importlib.util.find_spec("triton") is not None

    def capability(self) -> tuple[int, int]:
        """Capability of the device."""
        return accelerators(self.device).capability(self.device)

    def against(self, kernel: str) -> str | None:
        """The reason why the device runs no kernels of this name, None if it does."""
        if not is_accelerator(self.device):
            return f"needs an accelerator, this rank has {self.device}"
        return accelerators(self.device).against(kernel, self.device, self.capability())


def choose(config: TrainingConfig, attentions: Sequence[str], libraries: Libraries) -> Kernels:
    """The kernels of a run on this rank's device. `attentions` are those that the model can use, the best first.

    Raises:
        UnusableSettingsError: a wish cannot be met; the message names setting, value and what was found.
    """
    head_size = config.hidden_size // config.num_attention_heads
    obstacles = {FLASH_ATTENTION: lambda: against_flash_attention(head_size, config.precision, libraries)}
    attention = first_usable("attention", config.attention, attentions, obstacles)
    # Torch's own fused Adam is one kernel for many tensors, like apex's; for LAMB there is only apex.
    ranking = ("apex", "foreach") if config.optimizer == "lamb" else ("fused", "apex", "foreach")
    obstacles = {"apex": lambda: _against_apex(config, libraries)}
    with_attention = config.model_copy(update={"attention": attention.used})
    layers = _layers(config, libraries)
    return Kernels(
        attention=attention,
        optimizer=first_usable("optimizer_impl", config.optimizer_impl, ranking, obstacles),
        compilation=_compilation(with_attention, libraries),
        layers=layers,
        fp8=_fp8(config, layers.used, libraries),
    )


def _layers(config: TrainingConfig, libraries: Libraries) -> Choice:
    """Whose linear layers and norms the blocks have; where Transformer Engine's work, the devices tell the faster."""
    obstacles = {ENGINE: lambda: _against_engine(config, libraries)}
    chosen = first_usable("layers", config.layers, (ENGINE, TORCH), obstacles)
    if config.layers != AUTO or chosen.used == TORCH:
        return chosen
    if config.fp8_recipe() is not None and (missing := fp8.against(libraries.device)):
        return replace(chosen, why=f"{missing} for torch's layers in FP8")
    if config.context_parallelism() > 1:
        return replace(chosen, used=TORCH, why="a rank alone cannot time the layers of a divided sequence")
    return replace(chosen, used=TIMED, why="the ranks time both")


def _against_engine(config: TrainingConfig, libraries: Libraries) -> str | None:
    problem = config.against_engine()
    if problem is None:
        problem = libraries.against(ENGINE)
    return against_library(ENGINE, libraries) if problem is None else problem


def _fp8(config: TrainingConfig, layers: str, libraries: Libraries) -> Choice:
    asked = config.fp8_recipe()
    if asked is None:
        return Choice(asked=NONE, used=NONE, why="asked for")
    by_engine = layers == ENGINE
    problem = fp8.refusal(libraries.device) if by_engine else fp8.against(libraries.device)
    if problem is not None:
        raise UnusableSettingsError(f"fp8 = {asked!r}: {problem}")
    why = f"{ENGINE} {libraries.version(ENGINE)}" if by_engine else fp8.how(libraries.device)
    return Choice(asked=asked, used=asked, why=why)


def _compilation(config: TrainingConfig, libraries: Libraries) -> Choice:
    """Whether blocks are compiled: as the settings say, else where the step time settles soon and long before the end.

    That is on a device that Triton makes code for, if the shapes are those of the first step in every step, so
    that nothing is compiled again, and if the run is not known to end before COMPILED_STEPS steps.
    """
    asked = config.compile_backend
    if asked != AUTO:
        return Choice(asked=str(asked), used=NONE if asked is None else asked, why="asked for")
    problem = _against_compilation(config, libraries)
    if problem is not None:
        return Choice(asked=AUTO, used=NONE, why=problem)
    return Choice(asked=AUTO, used=_INDUCTOR, why="the shapes are the same in every step")


def _against_compilation(config: TrainingConfig, libraries: Libraries) -> str | None:
    if not is_accelerator(libraries.device):
        return libraries.against(_INDUCTOR)
    if config.varying_shapes() is not None:
        return config.varying_shapes()
    if config.max_steps is not None and config.max_steps < COMPILED_STEPS:
        return f"the run ends after {config.max_steps} steps; it pays from {COMPILED_STEPS} on"
    if not libraries.has_triton():
        return "triton is not installed"
    return libraries.against(_INDUCTOR)


def first_usable(setting: str, asked: str, ranking: Sequence[str], obstacles: Mapping[str, Any]) -> Choice:
    """The kernel that is asked for or, with "auto", the first of `ranking` without an obstacle. obstacles: by name, a
    function that gives the reason against it or None.

    Raises:
        UnusableSettingsError: what is asked for is not in `ranking` or cannot be used, or nothing can.
    """
    if asked != "auto":
        if asked not in ranking:
            allowed = ", ".join(repr(name) for name in ("auto", *ranking))
            raise UnusableSettingsError(f"{setting} = {asked!r}: not of this benchmark; allowed: {allowed}")
        problem = obstacles[asked]() if asked in obstacles else None
        if problem is not None:
            raise UnusableSettingsError(f"{setting} = {asked!r}: {problem}")
        return Choice(asked=asked, used=asked, why="asked for")
    reasons: list[str] = []
    for name in ranking:
        problem = obstacles[name]() if name in obstacles else None
        if problem is None:
            return Choice(asked=asked, used=name, why="; ".join(reasons) or "the first choice")
        reasons.append(f"not {name}: {problem}")
    raise UnusableSettingsError(f"{setting} = 'auto': nothing can be used: {'; '.join(reasons)}")


def against_flash_attention(head_size: int, precision: str, libraries: Libraries) -> str | None:
    """The reason why flash-attn 2 cannot be used; its README, "CUDA support", lists the requirements.

    head_size: elements of a head.
    """
    if not is_accelerator(libraries.device):
        return libraries.against("flash_attn")
    if precision not in _HALF:
        return f"needs precision 'bf16' or 'fp16', found {precision!r}"
    if head_size > _FLASH_HEAD_SIZE:
        return f"needs heads of {_FLASH_HEAD_SIZE} or less, found {head_size}"
    problem = against_library("flash_attn", libraries)
    if problem is not None:
        return problem
    version = libraries.version("flash_attn")
    if str(version).partition(".")[0] != "2":
        return f"needs flash_attn 2, found {version}"
    return libraries.against("flash_attn")


def _against_apex(config: TrainingConfig, libraries: Libraries) -> str | None:
    if (problem := libraries.against("apex")) is not None:
        return problem
    if config.strategy != "ddp" or config.tensor_parallelism()[0] > 1:
        return f"takes no sharded parameters (strategy = {config.strategy!r}, tensor_parallel_size)"
    return against_library("apex", libraries)


def against_library(name: str, libraries: Libraries) -> str | None:
    """The reason why a library cannot be used, None if it imports."""
    version = libraries.version(name)
    if version is None:
        return f"{name} is not installed"
    return f"{name} is {version}" if version.startswith(fused.UNUSABLE) else None


def agree(kernels: Kernels) -> None:
    """Check that all ranks use the same kernels.

    Raises:
        UnusableSettingsError: ranks differ; the message names them.
    """
    chosen = (kernels.attention, kernels.optimizer, kernels.compilation, kernels.layers)
    what = "attention, optimizer_impl, compile_backend and layers = 'auto' come out"
    agree_on(what, " and ".join(each.used for each in chosen), "set them, or mend the hosts")


def agree_on(what: str, own: str, action: str) -> None:
    """Check that all ranks say the same of `what`, this one `own`.

    Raises:
        UnusableSettingsError: ranks differ; the message names them, and what to do.
    """
    found = [""] * dist.get_world_size()
    dist.all_gather_object(found, own)
    if len(set(found)) > 1:
        ranks = "; ".join(
            f"{said} on ranks {', '.join(str(rank) for rank, each in enumerate(found) if each == said)}"
            for said in sorted(set(found))
        )
        raise UnusableSettingsError(f"{what} differently: {ranks}; {action}")
