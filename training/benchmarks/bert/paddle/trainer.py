"""Trains BERT in Paddle: the loop over epochs and steps, with the events and figures of every training."""

import contextlib
import math
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from protocol import pulse
from protocol.perflog import Event, PerfLogger
from training.benchmarks.bert.paddle.config import Config
from training.benchmarks.bert.paddle.data import ArraySet, PreparedData, work_of
from training.benchmarks.bert.paddle.group import PaddleGroup
from training.benchmarks.bert.paddle.model import PaddleBert, Tensors
from training.benchmarks.bert.paddle.proof import PaddleProof
from training.benchmarks.driver.training.data.data_order import DataOrder
from training.benchmarks.driver.training.data.hdf5 import Array
from training.benchmarks.driver.training.data.micro_batches import EvaluationBatches, MicroBatches
from training.benchmarks.driver.training.measuring.log_values import DeviceUse, TrainingProgress, step_end
from training.benchmarks.driver.training.measuring.rates import peak_of
from training.benchmarks.driver.training.measuring.step_meter import StepMeter
from training.benchmarks.driver.training.proof.rank_comparison import generator_seed
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule, applied_rate


class PaddleMeter(StepMeter[Any]):
    """Clocks of the training loop: on a GPU steps and computation are timed by events, which do not block."""

    def __init__(self, group: PaddleGroup) -> None:
        self._is_gpu = group.is_gpu
        super().__init__()

    def now(self) -> Any:
        """This moment: on a GPU an event in the stream, else seconds of the host's clock."""
        if not self._is_gpu:
            return time.perf_counter()
        event = paddle.device.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1e3 if self._is_gpu else end - begin

    def synchronize(self) -> None:
        """Wait until the device has done what was queued."""
        if self._is_gpu:
            paddle.device.synchronize()


class PaddleTrainer:
    """One run: the model on its device and the loop over epochs and steps; `step` counts updates."""

    def __init__(
        self, config: Config, group: PaddleGroup, logger: PerfLogger, model: PaddleBert, data: PreparedData
    ) -> None:
        place = group.placement
        self.config, self._group, self._logger = config, group, logger
        self.schedule = TrainingSchedule.of(config, dp_size=place.world_size, train_samples=len(data.train))
        self._model = model
        self.parameters = sum(math.prod(parameter.shape) for parameter in model.parameters())
        self._parallel = paddle.DataParallel(model) if place.world_size > 1 else model
        self._optimizer = _optimizer(config, model)
        paddle.seed(generator_seed(config, place.rank))
        self._train, self._evaluation = data.train, data.evaluation
        self._sampler = MicroBatches(
            data.train,
            self.schedule,
            micro_batch=config.train_batch_size,
            dp_rank=place.rank,
            dp_size=place.world_size,
            seed=config.seed,
        )
        order = DataOrder(
            self._sampler,
            dp_rank=place.rank,
            dp_size=place.world_size,
            global_batch_size=self.schedule.global_batch_size,
        )
        self._order = order
        total = self.schedule.total_steps
        self.proof = PaddleProof(
            model, config, group, total, order, lambda: float(self._optimizer.get_lr()), self._shared_loss
        )
        self.meter = PaddleMeter(group)
        self.work = np.zeros(3, dtype=np.int64)  # samples, tokens, operations
        self.metrics: dict[str, float] = {}
        self.step = 0
        self._evaluated = False
        self._logged: TrainingProgress | None = None
        self._grad_norm: float | None = None

    def evaluate(self) -> dict[str, Any]:
        """Evaluate now; the value of an evaluation's event."""
        begin = time.perf_counter()
        with self.meter.excluded():
            self.metrics = self._evaluated_metrics()
            self.proof.check(self.step)
        found = {"global_steps": self.step, **self.metrics, "one_training": self.proof.record()}
        return found | {"time": time.perf_counter() - begin}

    def train(self) -> None:
        """The loop, from TRAIN_START to TRAIN_END."""
        self.meter = PaddleMeter(self._group)
        self.meter.start()
        self._logger.log(Event.TRAIN_START, {"total_steps": self.schedule.total_steps})
        while not self._is_over():
            epoch = self.step // self.schedule.steps_per_epoch
            self._logger.log(Event.EPOCH_BEGIN, {"epoch": epoch})
            self._sampler.start(epoch, 0)
            batches = (self._train[numbers] for numbers in self._sampler)
            for _ in range(self.schedule.steps_per_epoch):
                self._logged_step(epoch, batches)
                if self._is_over():
                    break
            self._logger.log(Event.EPOCH_END, {"epoch": epoch})
        self.meter.synchronize()
        self._logger.log(Event.TRAIN_END)

    def progress(self) -> TrainingProgress:
        """The state of the run; waits for the device."""
        return TrainingProgress(
            step=self.step,
            steps_done=self.step,
            global_batch_size=self.schedule.global_batch_size,
            total_steps=self.schedule.total_steps,
            times=self.meter.read(),
        )

    def use(self) -> DeviceUse:
        """The devices of the run; all ranks call it."""
        cuda = paddle.device.cuda
        own = (
            cuda.max_memory_allocated()
            if self._group.is_gpu
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB
        )
        return DeviceUse(
            world_size=self._group.placement.world_size,
            peak_tflops=peak_of(self.config, cuda.get_device_name() if self._group.is_gpu else None),
            peak_memory_bytes=max(self._group.gathered(int(own))),
        )

    def work_per_sample(self, *, over_ranks: bool = False) -> tuple[float, float]:
        """Tokens and floating-point operations of a sample, forward and backward, on this rank or over all of them."""
        every = self._group.gathered(self.work.tolist()) if over_ranks else [self.work.tolist()]
        samples, tokens, flops = (sum(column) for column in zip(*every, strict=True))
        return tokens / samples, flops / samples

    def _is_over(self) -> bool:
        """Whether the last step is done, or an evaluation after a step has met all targets."""
        if self.step >= self.schedule.total_steps:
            return True
        targets = self.config.targets()
        return self._evaluated and bool(targets) and all(target.met(self.metrics) for target in targets)

    def _logged_step(self, epoch: int, batches: Iterator[dict[str, Array]]) -> None:
        """One step and everything due after it: evaluation, log lines."""
        step = self.step + 1
        is_due = self.schedule.evaluates_after(step)
        logged = step == 1 or step % self.config.log_freq == 0 or is_due
        if logged:
            self._logger.log(Event.STEP_BEGIN, {"step": step, "total_steps": self.schedule.total_steps}, step=step)
        loss = self._train_step(batches)
        evaluation = self.evaluate() if is_due else None
        self._evaluated = self._evaluated or is_due
        if logged:
            losses = self._group.gathered(float(loss))
            mean = sum(losses) / len(losses)
            progress = self.progress()
            found = self.metrics if self._evaluated else {}
            values = step_end(progress, self._logged, self.config, mean, epoch, found, self.work_per_sample()[0])
            self._logged = progress
            norm = {} if self._grad_norm is None else {"grad_norm": float(self._grad_norm)}
            extra = {"end_training": self._is_over()} | norm | self.proof.step_values(losses, is_due)
            self._logger.log(Event.STEP_END, values | extra)
            if not math.isfinite(mean):
                raise SystemExit(f"the loss is {mean} at step {step}: training has diverged")
        if evaluation is not None:
            self._logger.log(Event.EVALUATE, evaluation)
        self.proof.enforce()

    def _train_step(self, batches: Iterator[dict[str, Array]]) -> Any:
        """One update from the next micro-batches; returns this rank's mean loss, 0-d, on the device."""
        config, step = self.config, self.step + 1
        count = config.gradient_accumulation_steps
        micro_batches = [next(batches) for _ in range(count)]
        self.work += work_of(config, micro_batches)
        tensors = [_tensors(batch) for batch in micro_batches]
        self.meter.begin_compute()
        total = paddle.zeros([])
        for place, batch in enumerate(tensors):
            is_last = place == count - 1
            with contextlib.nullcontext() if is_last or self._parallel is self._model else self._parallel.no_sync():
                with self._cast():
                    loss = self._parallel(batch)["loss"] / count
                loss.backward()
            total += loss.detach()
        if config.max_grad_norm is not None:
            self._grad_norm = paddle.nn.utils.clip_grad_norm_(self._model.parameters(), config.max_grad_norm)
        self._optimizer.set_lr(applied_rate(config, step, self.schedule.total_steps))
        self._optimizer.step()
        self._optimizer.clear_grad()
        self.meter.end_compute()
        self.proof.last_batch = micro_batches[0]
        self.step = step
        self._order.step(count)
        pulse.step()
        return total

    def _cast(self) -> Any:
        """Mixed precision, if it is asked for."""
        return paddle.amp.auto_cast(enable=self.config.precision == "bf16", dtype="bfloat16")

    def _evaluated_metrics(self) -> dict[str, float]:
        """Every metric over the whole evaluation set, each sample counted once, the same on all ranks."""
        place = self._group.placement
        batches = EvaluationBatches(
            len(self._evaluation),
            batch_size=self.config.eval_batch_size,
            dp_rank=place.rank,
            dp_size=place.world_size,
        )
        sums: dict[str, list[float]] = {}
        for position, numbers in enumerate(batches):
            results = self._results(self._evaluation, numbers)
            if batches.counts(position):
                for name in results.keys() - {"loss"}:
                    pair = results[name].numpy().astype(np.float64)
                    sums[name] = [have + more for have, more in zip(sums.get(name, [0.0, 0.0]), pair, strict=True)]
            pulse.step()
        every = self._group.gathered(sums)
        totals = {
            name: [sum(column) for column in zip(*(of_rank[name] for of_rank in every if name in of_rank), strict=True)]
            for name in every[0]  # rank 0 has the first batch
        }
        return {name: total / count for name, (total, count) in totals.items()}

    def _shared_loss(self) -> float:
        """The loss on the first samples of the evaluation set, in nats."""
        count = min(self.config.eval_batch_size, len(self._evaluation))
        return float(self._results(self._evaluation, np.arange(count))["loss"])

    def _results(self, samples: ArraySet, numbers: Any) -> Tensors:
        """The model's results on these samples, without training; leaves it in training mode."""
        self._model.eval()
        with paddle.no_grad(), self._cast():
            found: Tensors = self._model(_tensors(samples[numbers]))
        self._model.train()
        return found


def _tensors(batch: dict[str, Array]) -> Tensors:
    return {name: paddle.to_tensor(array) for name, array in batch.items()}


def _optimizer(config: Config, model: PaddleBert) -> Any:
    """Paddle's optimizer that `config` names; weight decay applies to matrices only."""
    common = {
        "learning_rate": config.learning_rate, "beta1": config.beta1, "beta2": config.beta2, "epsilon": config.eps
    }  # fmt: skip
    if config.optimizer == "lamb":
        return paddle.optimizer.Lamb(
            parameters=model.parameters(),
            lamb_weight_decay=config.weight_decay,
            exclude_from_weight_decay_fn=lambda parameter: len(parameter.shape) <= 1,
            **common,
        )
    if config.optimizer == "adamw":
        matrices = {parameter.name for parameter in model.parameters() if len(parameter.shape) > 1}
        return paddle.optimizer.AdamW(
            parameters=model.parameters(),
            weight_decay=config.weight_decay,
            apply_decay_param_fun=lambda name: name in matrices,
            **common,
        )
    groups = [
        {"params": [p for p in model.parameters() if (len(p.shape) > 1) == decayed], "weight_decay": decay}
        for decayed, decay in ((True, config.weight_decay), (False, 0.0))
    ]
    return paddle.optimizer.Adam(parameters=groups, **common)
