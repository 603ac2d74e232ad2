"""Chooses micro-batch and recomputation of a step from the memory estimate: layout = "auto".

The rule: the least recomputation whose micro-batch of FULL_TOKENS tokens, or of all samples of a step, fits into the
device's memory; then the largest micro-batch that fits. If no such micro-batch fits with any recomputation, the least
recomputation with which a smaller one does. It fits if the estimate and MARGIN of it are within the memory. Less work
comes first because full recomputation costs a third of a step's operations; with fewer tokens than FULL_TOKENS the
products of a layer may be too small to keep a device busy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import torch
from pydantic import JsonValue

from common.host_memory import total_bytes
from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.layout.described import described_job
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED
from training.benchmarks.driver.training.layout.stage_estimate import bytes_of_ranks
from training.benchmarks.driver.training.model.kernels import agree_on
from training.benchmarks.driver.training.settings.settings import ENGINE, Recompute, TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.usage import UnusableSettingsError

MARGIN = RESERVED
FULL_TOKENS = 4096

# As settings hold it after validation, which a copy of settings does not repeat.
_SETTING: dict[Recompute, bool | Recompute] = {"none": False, "selective": "selective", "full": True}

TrainingConfigT = TypeVar("TrainingConfigT", bound=TrainingConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutCandidate:
    """A division of a step: samples of a micro-batch, how many of them, what is computed again, estimated bytes."""

    micro_batch: int
    micro_batches: int
    recompute: Recompute
    bytes: int

    def record(self) -> dict[str, JsonValue]:
        """As JSON."""
        return {
            "train_batch_size": self.micro_batch,
            "gradient_accumulation_steps": self.micro_batches,
            "activation_checkpointing": self.recompute,
            "estimated_bytes": self.bytes,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutChoice:
    """The layout that was chosen for a device of `device_bytes`, and for each recomputation what was considered.

    `compile_backend` is the decision of the run's kernels, for the record.
    """

    chosen: LayoutCandidate
    compile_backend: str | None
    device_bytes: int
    considered: tuple[LayoutCandidate, ...]

    def applied(self, config: TrainingConfigT) -> TrainingConfigT:
        """The settings with the choice in place of what was set."""
        changes = {
            "train_batch_size": self.chosen.micro_batch,
            "gradient_accumulation_steps": self.chosen.micro_batches,
            "activation_checkpointing": _SETTING[self.chosen.recompute],
        }
        return config.model_copy(update=changes)

    def record(self) -> dict[str, JsonValue]:
        """As JSON: the choice, and the largest micro-batch that fits with each recomputation, else the smallest."""
        return {
            **self.chosen.record(),
            "compile_backend": self.compile_backend,
            "device_memory_bytes": self.device_bytes,
            "margin": MARGIN,
            "considered": [candidate.record() for candidate in self.considered],
        }

    def finished(self) -> dict[str, JsonValue]:
        """The choice as FINISHED has it."""
        chosen = self.chosen.record()
        return {"layout": self.words, "estimated_memory_bytes": self.chosen.bytes, "chosen_layout": chosen}

    @property
    def words(self) -> str:
        """The choice in words."""
        compiled = "not compiled" if self.compile_backend is None else f"compiled by {self.compile_backend}"
        return f"{self.layout_words}, {compiled}"

    @property
    def layout_words(self) -> str:
        """The choice in words, without the compilation."""
        chosen = self.chosen
        return f"{chosen.micro_batches} x {chosen.micro_batch} samples, recomputation {chosen.recompute}"


def choose_layout(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    *,
    world_size: int,
    per_node: int,
    device_bytes: int,
    on_cpu: bool = False,
    compile_backend: str | None = None,
) -> LayoutChoice:
    """The layout of a step on `world_size` ranks, `per_node` on each node, each with a device of `device_bytes` bytes.

    Raises:
        UnusableSettingsError: not even one sample with full recomputation fits.
    """
    samples = config.train_batch_size * config.gradient_accumulation_steps
    full = min(samples, -(-FULL_TOKENS * config.context_parallelism() // config.tokens_per_sample()))
    fitting: list[LayoutCandidate] = []
    considered: list[LayoutCandidate] = []
    for recompute in get_args(Recompute):
        if recompute == "selective" and config.layers == ENGINE:
            continue  # as settings refuse it
        smallest = None
        for candidate in _candidates(benchmark, config, samples, recompute, (world_size, per_node, on_cpu)):
            smallest = candidate
            if candidate.bytes * (1 + MARGIN) <= device_bytes:
                fitting.append(candidate)
                break
        assert smallest is not None
        considered.append(smallest)
        if fitting and fitting[-1].recompute == recompute and fitting[-1].micro_batch >= full:
            break
    if not fitting:
        least = min(considered, key=lambda candidate: candidate.bytes)
        raise UnusableSettingsError(
            f"layout = 'auto': one sample with recomputation {least.recompute!r} is estimated to take"
            f" {least.bytes / 1e9:.2f} GB, and {MARGIN:.0%} are left free of the device's {device_bytes / 1e9:.2f} GB;"
            " take a smaller model, more ranks with strategy 'fsdp', or another device"
        )
    chosen = next((each for each in fitting if each.micro_batch >= full), fitting[0])
    return LayoutChoice(
        chosen=chosen, compile_backend=compile_backend, device_bytes=device_bytes, considered=tuple(considered)
    )


def _candidates(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    samples: int,
    recompute: Recompute,
    ranks: tuple[int, int, bool],
) -> Iterator[LayoutCandidate]:
    """The divisions of a step with this recomputation, the largest micro-batch first.

    Each is estimated where predict's memory model knows the training. What is traced takes seconds: its activations
    grow with the samples, all else stays, so that two estimates give all of them, on each rank of a pipeline.
    """
    world_size, per_node, on_cpu = ranks
    is_known = not on_cpu and described_job(config, world_size=world_size, per_node=per_node) is not None

    def estimated(micro: int) -> list[float]:
        return _estimated(benchmark, config, micro, recompute, ranks)

    bytes_of = estimated if is_known else _straight(estimated(1), estimated(2))
    for micro in range(samples, 0, -1):
        if samples % micro == 0 and config.can_have(samples // micro):
            yield LayoutCandidate(
                micro_batch=micro, micro_batches=samples // micro, recompute=recompute, bytes=int(max(bytes_of(micro)))
            )


def _straight(one: list[float], two: list[float]) -> Callable[[int], list[float]]:
    """The bytes of each rank by samples, straight through those of one sample and of two."""
    return lambda micro: [first + (micro - 1) * (second - first) for first, second in zip(one, two, strict=True)]


def _estimated(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    micro: int,
    recompute: Recompute,
    ranks: tuple[int, int, bool],
) -> list[float]:
    samples = config.train_batch_size * config.gradient_accumulation_steps
    changes = {
        "train_batch_size": micro,
        "gradient_accumulation_steps": samples // micro,
        "activation_checkpointing": _SETTING[recompute],
    }
    return bytes_of_ranks(benchmark, config.model_copy(update=changes), *ranks)


def device_bytes_of(config: TrainingConfig, device: torch.device, placement: Placement) -> int:
    """Bytes of memory for this rank: the setting's, all of a device, or a share of the host's.

    Raises:
        UnusableSettingsError: the host does not tell its memory.
    """
    if config.device_memory_bytes is not None:
        return config.device_memory_bytes
    if is_accelerator(device):
        return accelerators(device).total_memory(device)
    total = total_bytes()
    if total is None:
        raise UnusableSettingsError("layout = 'auto': /proc/meminfo does not tell the memory; set device_memory_bytes")
    return total // placement.local_world_size


def agree_on_layout(choice: LayoutChoice | None) -> None:
    """Check that all ranks chose the same.

    Raises:
        UnusableSettingsError: ranks differ, because their devices do; the message names them.
    """
    own = "none" if choice is None else choice.words
    agree_on("layout = 'auto' comes out", own, "set device_memory_bytes to that of the smallest device")
