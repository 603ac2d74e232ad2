"""Times a block of the model with torch's layers and with Transformer Engine's on the device, and takes the faster."""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from protocol import pulse
from protocol.perflog import write_line
from training.benchmarks.driver.training.data.loader import SampleSet
from training.benchmarks.driver.training.measuring.meter import Meter
from training.benchmarks.driver.training.model import engine
from training.benchmarks.driver.training.model.kernels import TIMED, Kernels
from training.benchmarks.driver.training.model.model import Batch, BenchmarkModel
from training.benchmarks.driver.training.model.parallel import compile_blocks
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.settings.settings import ENGINE, TORCH, TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import RISING_NS
from training.benchmarks.driver.workload.usage import UnusableSettingsError

Kinds = tuple[str, ...]
PLAIN: Kinds = ()
CANDIDATES: tuple[Kinds, ...] = (PLAIN, (engine.LINEAR,), (engine.NORM,), engine.KINDS)
CALLS, FIRST_CALLS = 20, 5
GAIN = 0.02
"""By which share of a block's time torch's layers must be beaten: less is within what two samples differ by."""
_WRONG = (RuntimeError, AssertionError, AttributeError, NotImplementedError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """The `kinds` of layers of the blocks that are Transformer Engine's, and how many were `replaced`. Where they were
    timed: by words for the kinds the seconds of a block's forward and backward pass of one micro-batch, the median on
    the slowest rank, and why some were not timed.
    """

    kinds: Kinds
    seconds: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    replaced: engine.Replaced = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The part of INIT_END and FINISHED; `layers` in words."""
        by_engine = f"{ENGINE}: {engine.in_words(self.replaced)}"
        found = {"seconds_of_a_block": dict(self.seconds), "not_timed": dict(self.failed)}
        return {"layers": by_engine if self.kinds else TORCH} | {
            f"layers_{key}": each for key, each in found.items() if each
        }


class Contest:
    """Times CANDIDATES of one model: `make` gives it for given settings, on the meta device, with torch's layers."""

    def __init__(
        self,
        make: Callable[[TrainingConfig], BenchmarkModel],
        config: TrainingConfig,
        kernels: Kernels,
        precision: Precision,
        device: torch.device,
    ) -> None:
        self._make = make
        self._config = config.model_copy(update={"num_layers": 1, "attention": kernels.attention.used})
        self._kernels = kernels
        self._precision = precision
        self._device = device
        self._meter = Meter(device)

    def layers(self, samples: SampleSet) -> Layers:
        """The layers of the run: those that are asked for, else the fastest on a micro-batch of the first of these
        samples. All ranks call it.
        """
        used = self._kernels.layers.used
        if used != TIMED:
            return Layers(kinds=engine.KINDS if used == ENGINE else PLAIN)
        seconds: dict[Kinds, float] = {}
        failed: dict[Kinds, str] = {}
        count = self._config.train_batch_size
        inputs: list[Any] = []
        most = 0
        for number, kinds in enumerate(CANDIDATES, 1):
            write_line(sys.stdout, f"layers: trying {words(kinds)}, {number} of {len(CANDIDATES)}\n")
            try:
                inputs = inputs or self._inputs(samples[[number % len(samples) for number in range(count)]])
                self._forget()
                seconds[kinds] = self._seconds(kinds, inputs)
                held = self._peak()
                if kinds == PLAIN:
                    most = round(held * (1 + GAIN))
                elif held > most:
                    failed[kinds] = f"a block holds {held} bytes, {most} at most are allowed beside torch's"
                    del seconds[kinds]
            except (*_WRONG, UnusableSettingsError) as error:
                failed[kinds] = (str(error).splitlines() or [""])[0] or type(error).__name__
            if PLAIN not in seconds:
                break  # without whose time nothing wins
        self._forget()
        return decided(seconds, failed)

    def _peak(self) -> int:
        return accelerators(self._device).peak_memory(self._device) if is_accelerator(self._device) else 0

    def _forget(self) -> None:
        """Leave no trace in what the training compiles, or in the memory that it reports."""
        if self._kernels.compile_backend is not None:
            torch.compiler.reset()
        gc.collect()
        if is_accelerator(self._device):
            accelerators(self._device).give_back()
            accelerators(self._device).forget_peak(self._device)

    def _inputs(self, batch: Batch) -> list[Any]:
        """The inputs of the model's first block for the micro-batch."""
        model = self._make(self._config)
        model.to_empty(device=self._device)
        self._fill(model, model)
        found: list[Any] = []

        def keep(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
            found.extend(inputs)
            raise _ReachedError

        model.blocks()[0].register_forward_pre_hook(keep)
        placed = {name: tensor.to(self._device) for name, tensor in batch.items()}
        with suppress(_ReachedError), torch.no_grad(), self._precision.autocast():
            model.train()(placed)
        assert found, "the model did not call its first block"
        return [self._leaf(each) for each in found]

    def _leaf(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        # As FSDP2 hands it to a block.
        return value.detach().to(torch.bfloat16) if self._config.casts_weights() else value.detach()

    def _fill(self, model: BenchmarkModel, part: nn.Module) -> None:
        """Initial values of the parameters of this part, and the model's constants, on the device."""
        own = {id(parameter) for parameter in part.parameters()}
        generator = torch.Generator(self._device).manual_seed(self._config.seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if id(parameter) in own:
                    model.initialize(name, parameter, generator)
        model.make_constants(self._device)

    def _seconds(self, kinds: Kinds, inputs: list[Any]) -> float:
        """Median of the seconds of a forward and backward pass of a block with these layers of the library.

        Raises:
            UnusableSettingsError: they are not worth a trial.
        """
        if engine.LINEAR in kinds and self._config.recompute == "selective":
            raise UnusableSettingsError(f"recomputation 'selective' keeps no product of {ENGINE}, which it repeats")
        model = self._make(self._config)
        replaced = engine.convert(model, kinds, self._kernels.fp8_recipe, self._device)
        if not all(done for done, _ in replaced.values()):
            raise UnusableSettingsError(f"{ENGINE} can replace {engine.in_words(replaced)} layers of a block")
        block = model.blocks()[0]
        block.to_empty(device=self._device)
        self._fill(model, block)
        if self._config.casts_weights():
            block.to(torch.bfloat16)
        model.train()
        model.recompute = self._config.recompute
        if self._config.strategy != "ddp":
            model.recompute_within()
        if self._kernels.compile_backend is not None:
            compile_blocks(model, self._kernels.compile_backend)
        inputs = [inputs[0].requires_grad_(), *inputs[1:]]

        def call() -> None:
            with self._precision.autocast():
                found: Any = model.run_block(block, *inputs)
            pulse.step()  # each pass may have been compiled, which takes a minute
            result = found if isinstance(found, Tensor) else found[0]
            result.backward(torch.ones_like(result))
            pulse.step()
            for parameter in (inputs[0], *block.parameters()):
                parameter.grad = None

        self._warm_up(call)
        marks = [self._meter.now()]
        for _ in range(CALLS):
            call()
            marks.append(self._meter.now())
        self._meter.synchronize()
        return statistics.median(self._meter.seconds(*pair) for pair in pairwise(marks))

    def _warm_up(self, call: Callable[[], None]) -> None:
        """Call until what is compiled is there and the device's clock has risen."""
        for _ in range(FIRST_CALLS):
            call()
        self._meter.synchronize()
        begin = time.perf_counter()
        while time.perf_counter() - begin < RISING_NS / 1e9:
            call()
            self._meter.synchronize()


class _ReachedError(Exception):
    """The first block has its inputs."""


def decided(seconds: Mapping[Kinds, float], failed: Mapping[Kinds, str]) -> Layers:
    """The layers of all ranks by the times of each, in seconds, on its slowest rank; what failed on one is out. All
    ranks call it.
    """
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, (dict(seconds), dict(failed)))
    slowest = {
        kinds: max(of_rank[kinds] for of_rank, _ in found)
        for kinds in CANDIDATES
        if all(kinds in of_rank for of_rank, _ in found)
    }
    reasons = {kinds: reason for _, of_rank in reversed(found) for kinds, reason in of_rank.items()}
    best = min(slowest, key=lambda kinds: slowest[kinds], default=PLAIN)
    wins = PLAIN in slowest and slowest[best] < (1 - GAIN) * slowest[PLAIN]
    return Layers(
        kinds=best if wins else PLAIN,
        seconds={words(kinds): slowest[kinds] for kinds in slowest},
        failed={words(kinds): reason for kinds, reason in reasons.items()},
    )


def words(kinds: Kinds) -> str:
    """The kinds of layers, or that all are torch's."""
    return " and ".join(kinds) or TORCH
