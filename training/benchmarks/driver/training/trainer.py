"""Builds a training on its ranks and runs its loop, with the PerfLog events of epochs, steps and evaluations."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from protocol import pulse
from protocol.perflog import Event
from training.benchmarks.driver.training.benchmark import PreparedTraining, TrainingBenchmark, checked_parameters
from training.benchmarks.driver.training.data.data_order import DataOrder
from training.benchmarks.driver.training.data.loader import SampleSet, loader
from training.benchmarks.driver.training.data.micro_batches import EvaluationBatches, MicroBatches
from training.benchmarks.driver.training.measuring import report
from training.benchmarks.driver.training.measuring.contest import Contest, Layers
from training.benchmarks.driver.training.measuring.log_values import TrainingProgress, step_end
from training.benchmarks.driver.training.measuring.meter import Meter
from training.benchmarks.driver.training.measuring.profiling import Profiling
from training.benchmarks.driver.training.measuring.work import Work
from training.benchmarks.driver.training.model import engine, kernels, vendors_parts
from training.benchmarks.driver.training.model.checkpoint import Checkpoints
from training.benchmarks.driver.training.model.model import LOSS, Batch, BenchmarkModel
from training.benchmarks.driver.training.model.parallel import Layout, ParallelModel, spread
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.proof.gradient_probe import unsynchronized
from training.benchmarks.driver.training.proof.one_training import OneTraining
from training.benchmarks.driver.training.proof.rank_comparison import generator_seed
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.training.update import Update
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.usage import UnusableSettingsError


class Evaluator:
    """Runs the model over this rank's share of the evaluation set and sums over the ranks. `first_batch` is the first
    that the model got in the last evaluation.
    """

    def __init__(self, samples: SampleSet, layout: Layout, config: TrainingConfig, device: torch.device) -> None:
        self._sampler = EvaluationBatches(
            len(samples), batch_size=config.eval_batch_size, dp_rank=layout.dp_rank, dp_size=layout.dp_size
        )
        self._loader = loader(samples, self._sampler, workers=config.num_workers, device=device)
        self.first_batch: Batch = {}

    @torch.no_grad()
    def evaluate(self, model: ParallelModel, precision: Precision) -> dict[str, float]:
        """Every metric of the model, by name. Leaves the model in training mode."""
        model.module.eval()
        sums: dict[str, Tensor] = {}
        for position, batch in enumerate(self._loader):
            if position == 0:
                self.first_batch = batch
            with precision.autocast():
                results = model(batch)
            counted = float(self._sampler.counts(position))
            for name, pair in results.items():
                if name != LOSS:
                    sums[name] = sums.get(name, torch.zeros_like(pair)) + counted * pair
            pulse.step()
        model.module.train()
        totals = torch.stack(list(sums.values())).double()
        dist.all_reduce(totals)
        return {name: float(total / count) for name, (total, count) in zip(sums, totals.tolist(), strict=True)}


class Trainer:
    """One run: the model on its devices and the loop over epochs and steps; `step` counts updates."""

    def __init__(
        self, benchmark: TrainingBenchmark[Any], run: WorkloadContext[TrainingConfig], prepared: PreparedTraining
    ) -> None:
        config, device = run.config, run.group.device
        tp_size, sequence_parallel = config.tensor_parallelism()
        self.config = config
        self.layout = Layout.of(run.group, config, tp_size=tp_size, sequence_parallel=sequence_parallel)
        kernels.agree(prepared.kernels)
        model = vendors_parts.converted(prepared.model, config, run.extern)
        self.parameters = checked_parameters(model, config)
        self.schedule = TrainingSchedule.of(config, dp_size=self.layout.dp_size, train_samples=len(prepared.data.train))
        self._logger = run.logger
        self._step_names = benchmark.step_names
        self._device = device
        self.precision = Precision(config, device)
        layers = self._timed_layers(benchmark, run, prepared)
        replaced = engine.convert(model, layers.kinds, prepared.kernels.fp8_recipe, device)
        self.layers = replace(layers, replaced=replaced)
        self.model = spread(model, self.layout, config, device, prepared.weights, prepared.kernels.compile_backend)
        self.optimizer = vendors_parts.optimizer_of(
            self.model.module, config, prepared.kernels.optimizer.used, run.extern
        )
        self.profiling = Profiling(config, rank=run.group.placement.rank, device=device)
        self.work = Work(benchmark, config, device)
        self._update = Update(
            self.model, self.optimizer, self.precision, config, self.schedule.total_steps, self.profiling, self.work
        )
        torch.manual_seed(generator_seed(config, self.layout.dp_rank))
        self._sampler = MicroBatches(
            prepared.data.train,
            self.schedule,
            micro_batch=config.train_batch_size,
            dp_rank=self.layout.dp_rank,
            dp_size=self.layout.dp_size,
            seed=config.seed,
        )
        self._data = prepared.data
        self._order = DataOrder(
            self._sampler,
            dp_rank=self.layout.dp_rank,
            dp_size=self.layout.dp_size,
            global_batch_size=self.schedule.global_batch_size,
        )
        self._loader = loader(prepared.data.train, self._sampler, workers=config.num_workers, device=device)
        samples = prepared.data.evaluation
        self._evaluator = Evaluator(samples, self.layout, config, device) if len(samples) else None
        total = self.schedule.total_steps
        self.proof = OneTraining(self.model, self.layout, config, self.optimizer, total, self._order, prepared.data)
        self.meter = Meter(device)
        self._targets = config.targets()
        self.metrics: dict[str, float] = {}
        self.step = 0
        self._evaluated = False
        self._logged: TrainingProgress | None = None
        self.checkpoints = self._open_checkpoints(benchmark.name, run, prepared)
        self._first_step = self.step

    def _timed_layers(
        self, benchmark: TrainingBenchmark[Any], run: WorkloadContext[TrainingConfig], prepared: PreparedTraining
    ) -> Layers:
        """Whose layers the blocks have; where both work, the faster ones on this run's micro-batches."""

        def make(config: TrainingConfig) -> BenchmarkModel:
            with torch.device("meta"):
                model = benchmark.build_model(config)
            return vendors_parts.converted(model, config, run.extern)

        contest = Contest(make, self.config, prepared.kernels, self.precision, self._device)
        return contest.layers(prepared.data.train)

    def _open_checkpoints(
        self, name: str, run: WorkloadContext[TrainingConfig], prepared: PreparedTraining
    ) -> Checkpoints | None:
        if self.config.checkpoint_dir is None:
            return None
        identity = report.identity(name, self.config, self.schedule, run.group.placement.world_size, prepared)
        defaults = {key: field.default for key, field in type(self.config).model_fields.items()}
        checkpoints = Checkpoints(Path(self.config.checkpoint_dir), identity, defaults | {"model": identity["model"]})
        latest = checkpoints.open(resume=self.config.resume)
        checkpoints.check_shared()
        if latest is not None:
            self.step = checkpoints.load(latest, self.model, self.optimizer, self.precision)
        if self.step >= self.schedule.total_steps:
            raise UnusableSettingsError(
                f"resume: {latest} is after step {self.step}, the run ends after step {self.schedule.total_steps}"
            )
        return checkpoints

    @property
    def can_evaluate(self) -> bool:
        """Whether there is an evaluation set."""
        return self._evaluator is not None

    def evaluate(self) -> dict[str, Any]:
        """Evaluate now; the value of an evaluation's event."""
        assert self._evaluator is not None, "there is no evaluation set"
        begin = time.perf_counter()
        with self.meter.excluded():
            # Beside it they would be most of a step's memory.
            self.model.clear_gradients()
            self.metrics = self._evaluator.evaluate(self.model, self.precision)
        self.proof.evaluated = self._evaluator.first_batch
        self.compare()
        found = {"global_steps": self.step, **self.metrics, "one_training": self.proof.record()}
        return found | {"time": time.perf_counter() - begin}

    def compare(self, *, with_loss: bool = True) -> None:
        """Compare the ranks now, `with_loss` also by a forward pass."""
        with self.meter.excluded():
            if with_loss:
                self.model.clear_gradients()
            self.proof.check(self.step, self.precision, with_loss=with_loss)

    def check_gradients(self) -> None:
        """End the run if a rank has other initial weights than the others, or does not get their gradients."""
        self.proof.enforce()
        sample = {name: tensor.to(self._device) for name, tensor in self._data.train[[0]].items()}
        lonely = unsynchronized(self.model, self.layout, self.precision, sample, self.config.seed)
        if lonely is not None:
            self.proof.end(lonely)

    def train(self) -> None:
        """The loop, from TRAIN_START to TRAIN_END."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[int]:
        """The loop of `train`: yields a step's number after it and everything due after it."""
        self.meter = Meter(self._device)
        start: dict[str, Any] = {"total_steps": self.schedule.total_steps}
        if self._first_step:
            start["resumed_after_step"] = self._first_step
        self.meter.start()
        self._logger.log(Event.TRAIN_START, start)
        while not self._is_over():
            yield from self._epoch(self.step // self.schedule.steps_per_epoch)
        self.profiling.close()
        self.meter.synchronize()
        self._logger.log(Event.TRAIN_END)

    def progress(self) -> TrainingProgress:
        """The state of the run; waits for the device."""
        return TrainingProgress(
            step=self.step,
            steps_done=self.step - self._first_step,
            global_batch_size=self.schedule.global_batch_size,
            total_steps=self.schedule.total_steps,
            times=self.meter.read(),
        )

    def _is_over(self) -> bool:
        """Whether the last step is done, or an evaluation after a step has met all targets."""
        if self.step >= self.schedule.total_steps:
            return True
        return self._evaluated and bool(self._targets) and all(target.met(self.metrics) for target in self._targets)

    def _epoch(self, epoch: int) -> Iterator[int]:
        self._logger.log(Event.EPOCH_BEGIN, {"epoch": epoch})
        batches = self.batches()
        for _ in range(self.step % self.schedule.steps_per_epoch, self.schedule.steps_per_epoch):
            self._logged_step(epoch, batches)
            yield self.step
            if self._is_over():
                break
        self._logger.log(Event.EPOCH_END, {"epoch": epoch})

    def _logged_step(self, epoch: int, batches: Iterator[Batch]) -> None:
        """One step and everything due after it: evaluation, log lines, checkpoint."""
        step = self.step + 1
        is_due = self.schedule.evaluates_after(step)
        evaluates = is_due and self.can_evaluate
        logged = step == 1 or step % self.config.log_freq == 0 or is_due
        if logged:
            place = {"step": step, "total_steps": self.schedule.total_steps}
            self._logger.log(Event.STEP_BEGIN, place, step=step)
        self.train_step(batches, is_logged=logged)
        evaluation = self.evaluate() if evaluates else None
        if not evaluates and (is_due or self._compares_after(step)):
            self.compare(with_loss=is_due)
        self._evaluated = self._evaluated or evaluates
        if logged:
            self._log_step_end(epoch, is_due=is_due)
        if evaluation is not None:
            self._logger.log(Event.EVALUATE, evaluation)
        self.proof.enforce()
        interval = self.config.checkpoint_interval_steps
        if self.checkpoints is not None and interval is not None and step % interval == 0:
            with self.meter.excluded():
                self.checkpoints.save(step, self.model, self.optimizer, self.precision)

    def _log_step_end(self, epoch: int, *, is_due: bool) -> None:
        """Log the end of the last step, and end the run if its loss is not finite."""
        losses = self.proof.losses()
        mean = sum(losses) / len(losses)
        found = self.metrics if self._evaluated else {}
        progress = self.progress()
        values = step_end(progress, self._logged, self.config, mean, epoch, found, self.work.per_sample()[0])
        self._logged = progress
        extra: dict[str, Any] = {"end_training": self._is_over()} | self._update.numerics()
        extra |= self.model.module.figures()
        extra |= self.proof.step_values(losses, is_due)
        extra |= {name: found[metric] for name, metric in self._step_names.items() if metric in found}
        self._logger.log(Event.STEP_END, values | extra)
        if not math.isfinite(mean):
            self.compare(with_loss=False)
            self.proof.enforce()
            raise SystemExit(f"the loss is {mean} at step {self.step}: training has diverged")

    def _compares_after(self, step: int) -> bool:
        interval = self.config.compare_interval_steps
        return interval is not None and step % interval == 0

    def batches(self) -> Iterator[Batch]:
        """This rank's micro-batches, dicts of tensors (samples, ...), from the next step to its epoch's end."""
        epoch, done = divmod(self.step, self.schedule.steps_per_epoch)
        self._sampler.start(epoch, done)
        return iter(self._loader)

    def train_step(self, batches: Iterator[Batch], *, is_logged: bool = False) -> torch.Tensor:
        """One update from the next micro-batches; returns this rank's mean loss, 0-d, on the device. The losses of all
        ranks are gathered meanwhile, for `proof.losses`, if it is logged.
        """
        step = self.step + 1
        is_profiled = step in self.profiling.steps
        if is_profiled:
            with self.meter.excluded():
                self.profiling.begin(step)
        self.proof.finiteness.begin(step, self.precision.may_overflow())
        loss = self._update.run(batches, step, self.meter, self.proof.share_loss if is_logged else None)
        self.proof.finiteness.note_loss(loss)
        self.proof.last_batch = self._update.first_batch
        if is_profiled:
            with self.meter.excluded():
                self.profiling.end(step)
        self.step = step
        self._order.step(self.config.gradient_accumulation_steps)
        pulse.step()
        return loss
