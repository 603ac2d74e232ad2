"""Runs the training loop of every training benchmark with its PerfLog events; the entry of every rank."""

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from training.benchmarks.driver.protocol import pulse
from training.benchmarks.driver.protocol.perflog import Event, PerfLogger
from training.benchmarks.driver.training import kernels, optimizers, report
from training.benchmarks.driver.training.benchmark import PreparedTraining, TrainingBenchmark, prepare
from training.benchmarks.driver.training.checkpoint import Checkpoints
from training.benchmarks.driver.training.evaluation import Evaluator
from training.benchmarks.driver.training.loader import MicroBatches, loader
from training.benchmarks.driver.training.meter import Meter
from training.benchmarks.driver.training.model import LOSS, Batch
from training.benchmarks.driver.training.parallel import Layout, average, spread
from training.benchmarks.driver.training.precision import Precision
from training.benchmarks.driver.training.schedule import ScheduleError, TrainingSchedule, learning_rate
from training.benchmarks.driver.training.settings import TrainingConfig
from training.benchmarks.driver.workload.process_group import Placement, default_backend, device_for
from training.benchmarks.driver.workload.run_context import UnusableSettingsError, WorkloadContext, open_run


def run_training(
    benchmark: TrainingBenchmark[Any], config_class: type[TrainingConfig], argv: Sequence[str] | None = None
) -> None:
    """Entry of every rank. Exits with code 1 if a target is missed, with 2 for unusable settings or data."""
    begin = time.perf_counter()
    prepared: list[PreparedTraining] = []

    def before_devices(config: TrainingConfig, logger: PerfLogger, data_dir: Path | None) -> None:
        local_rank = Placement.from_environment().local_rank
        libraries = kernels.Libraries(device_for(config.backend or default_backend(), local_rank))
        chosen = kernels.choose(config, benchmark.attentions, libraries)
        # The other ranks of the node have the same libraries.
        found = {"fused": libraries.all()} if local_rank == 0 else {}
        logger.log(Event.LAUNCH_TRAINING, found | {"kernels": chosen.record()})
        prepared.append(prepare(benchmark, config, data_dir, chosen))

    with open_run(benchmark.name, "pytorch", config_class, argv, before_devices=before_devices) as run:
        try:
            trainer = Trainer(benchmark, run, prepared.pop())
        except ScheduleError as error:
            raise UnusableSettingsError(str(error)) from error
        run.logger.log(Event.INIT_EVALUATION, trainer.evaluate())
        run.logger.log(Event.INIT_END)
        init_seconds = time.perf_counter() - begin
        trainer.train()
        result = report.finished(trainer.progress(), run, benchmark.throughput_unit, trainer.metrics)
        times = {"e2e_time": time.perf_counter() - begin, "init_time": init_seconds}
        run.logger.log(Event.FINISHED, times | result)
    if result["converged"] is False:
        bounds = [str(target) for target in run.config.targets() if not target.met(trainer.metrics)]
        found = ", ".join(f"{name} {value:.4g}" for name, value in trainer.metrics.items())
        raise SystemExit(
            f"{benchmark.name}: target missed after {trainer.step} steps: wanted {' and '.join(bounds)}, found {found}"
        )


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
        self.schedule = TrainingSchedule.of(config, dp_size=self.layout.dp_size, train_samples=len(prepared.data.train))
        self._logger = run.logger
        self._step_names = benchmark.step_names
        self._device = device
        self.precision = Precision(config, device)
        self.model = spread(prepared.model, self.layout, config, device, prepared.weights)
        self.optimizer = optimizers.build(self.model.module, config, prepared.kernels.optimizer.used)
        bound = config.max_grad_norm
        self._clipper = None if bound is None else optimizers.GradientClipper(self.model.module, bound)
        torch.manual_seed((config.seed << 20) + self.layout.dp_rank)  # dropout: the same in a tensor-parallel group
        self._sampler = MicroBatches(
            prepared.data.train,
            self.schedule,
            micro_batch=config.train_batch_size,
            dp_rank=self.layout.dp_rank,
            dp_size=self.layout.dp_size,
            seed=config.seed,
        )
        self._loader = loader(prepared.data.train, self._sampler, workers=config.num_workers, device=device)
        self._evaluator = Evaluator(prepared.data.evaluation, self.layout, config, device)
        self.meter = Meter(device)
        self._targets = config.targets()
        self.metrics: dict[str, float] = {}
        self.grad_norm: torch.Tensor | None = None
        self.step = 0
        self._evaluated = False
        self.checkpoints = self._open_checkpoints(run, prepared)
        self._first_step = self.step

    def _open_checkpoints(self, run: WorkloadContext[TrainingConfig], prepared: PreparedTraining) -> Checkpoints | None:
        if self.config.checkpoint_dir is None:
            return None
        identity = report.identity(self.config, self.schedule, run.group.placement.world_size, prepared)
        checkpoints = Checkpoints(Path(self.config.checkpoint_dir), identity)
        latest = checkpoints.open(resume=self.config.resume)
        checkpoints.check_shared()
        if latest is not None:
            self.step = checkpoints.load(latest, self.model, self.optimizer, self.precision)
        if self.step >= self.schedule.total_steps:
            raise UnusableSettingsError(
                f"resume: {latest} is after step {self.step}, the run ends after step {self.schedule.total_steps}"
            )
        return checkpoints

    def evaluate(self) -> dict[str, Any]:
        """Evaluate now; the value of an evaluation's event."""
        begin = time.perf_counter()
        with self.meter.excluded():
            self.metrics = self._evaluator.evaluate(self.model, self.precision)
        return {"global_steps": self.step, **self.metrics, "time": time.perf_counter() - begin}

    def train(self) -> None:
        """The loop, from TRAIN_START to TRAIN_END."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[int]:
        """The loop of `train`, one step at a time: yields the step's number after the step and everything due after
        it.
        """
        self.meter = Meter(self._device)
        start: dict[str, Any] = {"total_steps": self.schedule.total_steps}
        if self._first_step:
            start["resumed_after_step"] = self._first_step
        self._logger.log(Event.TRAIN_START, start)
        self.meter.start()
        while not self._is_over():
            yield from self._epoch(self.step // self.schedule.steps_per_epoch)
        self.meter.synchronize()
        self._logger.log(Event.TRAIN_END)

    def progress(self) -> report.TrainingProgress:
        """The state of the run; waits for the device."""
        return report.TrainingProgress(
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
        evaluates = self.schedule.evaluates_after(step)
        logged = step == 1 or step % self.config.log_freq == 0 or evaluates
        if logged:
            place = {"step": step, "total_steps": self.schedule.total_steps}
            self._logger.log(Event.STEP_BEGIN, place)
        loss = self.train_step(batches)
        evaluation = self.evaluate() if evaluates else None
        self._evaluated = self._evaluated or evaluates
        if logged:
            mean = float(average(loss.detach().float()))
            found = self.metrics if self._evaluated else {}
            values = report.step_end(self.progress(), self.config, mean, epoch, found)
            extra = {"end_training": self._is_over()} | self._numerics()
            extra |= {name: found[metric] for name, metric in self._step_names.items() if metric in found}
            self._logger.log(Event.STEP_END, values | extra)
            if not math.isfinite(mean):
                raise SystemExit(f"the loss is {mean} at step {step}: training has diverged")
        if evaluation is not None:
            self._logger.log(Event.EVALUATE, evaluation)
        interval = self.config.checkpoint_interval_steps
        if self.checkpoints is not None and interval is not None and step % interval == 0:
            with self.meter.excluded():
                self.checkpoints.save(step, self.model, self.optimizer, self.precision)

    def batches(self) -> Iterator[Batch]:
        """This rank's micro-batches, dicts of tensors of shape (samples, ...), from the next step to the end of its
        epoch.
        """
        epoch, done = divmod(self.step, self.schedule.steps_per_epoch)
        self._sampler.start(epoch, done)
        return iter(self._loader)

    def train_step(self, batches: Iterator[Batch]) -> torch.Tensor:
        """One update from the next micro-batches; returns this rank's mean loss, 0-d, on the device."""
        config, precision = self.config, self.precision
        first = next(batches)
        self.meter.begin_compute()
        # Not after the update: the C library would return the memory, and the forward pass would map it again.
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(first) if config.gradient_accumulation_steps == 1 else self._accumulate(first, batches)
        if self._clipper is not None:
            precision.unscale(self.optimizer)
            self.grad_norm = self._clipper.clip()
        optimizers.set_learning_rate(self.optimizer, learning_rate(config, self.step + 1, self.schedule.total_steps))
        precision.step(self.optimizer)
        self.meter.end_compute()
        self.step += 1
        pulse.step()
        return loss

    def _backward(self, micro_batch: Batch) -> torch.Tensor:
        """Add the gradients of one micro-batch; returns its contribution to the step's mean loss."""
        with self.precision.autocast():
            loss = self.model(micro_batch)[LOSS]
        if self.config.gradient_accumulation_steps > 1:
            loss = loss / self.config.gradient_accumulation_steps
        self.precision.backward(loss)
        return loss.detach()

    def _accumulate(self, first: Batch, batches: Iterator[Batch]) -> torch.Tensor:
        """The gradients of all micro-batches of a step; returns its mean loss."""
        last = self.config.gradient_accumulation_steps - 1
        with self.model.accumulating(is_last=False):
            total = self._backward(first)
        for micro in range(1, last + 1):
            with self.model.accumulating(is_last=micro == last):
                total = total + self._backward(next(batches))
        return total

    def _numerics(self) -> dict[str, Any]:
        values = {}
        if self.grad_norm is not None:
            values["grad_norm"] = float(self.grad_norm)
        if self.precision.loss_scale is not None:
            values["loss_scale"] = self.precision.loss_scale
        return values
