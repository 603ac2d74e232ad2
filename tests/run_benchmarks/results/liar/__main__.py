"""A rank of the training that may lie: a loop of its own with the clocks and the log values of every training."""

import math
import os
import sys
import time
from typing import Any

from protocol.arguments import parse_arguments
from protocol.case_file import settings_of, submission
from protocol.perflog import Event, PerfLogger
from training.benchmarks.driver.training.measuring import log_values
from training.benchmarks.driver.training.measuring.log_values import DeviceUse, TrainingProgress
from training.benchmarks.driver.training.measuring.steady import SteadyState
from training.benchmarks.driver.training.measuring.step_meter import StepMeter
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule

from .pytorch.config import Config

_perf_counter, _time_ns = time.perf_counter, time.time_ns
RATES = ("throughput(ips)_raw", "throughput(ips)_steady", "training_sequences_per_second")
STEPS_CLAIMED, STEPS_MADE = 300, 20


class _Meter(StepMeter[float]):
    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def synchronize(self) -> None:
        pass


def main() -> None:
    """Log a training of one rank."""
    arguments = parse_arguments("liar", sys.argv[1:])
    config, case_sha256 = settings_of(arguments, "liar", "pytorch", Config)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if config.lie == "clock":
        time.perf_counter = lambda: _perf_counter() / 2
    if config.lie == "other clock" and rank == world_size - 1:
        begin_ns = _time_ns()
        time.time_ns = lambda: begin_ns + 20 * (_time_ns() - begin_ns)
    if config.lie == "whole clock" and rank == world_size - 1:
        slow_from = _time_ns()
        time.time_ns = lambda: slow_from + (_time_ns() - slow_from) // 20
    begin = time.perf_counter()
    logger = PerfLogger(rank)
    logger.log(Event.SUBMIT_INFO, submission(arguments, "liar", "pytorch", config, case_sha256).model_dump(mode="json"))
    logger.log(Event.INIT_START)
    logger.log(Event.INIT_END)
    init_seconds = time.perf_counter() - begin
    schedule = TrainingSchedule.of(config, dp_size=world_size, train_samples=config.train_samples)
    finished = _train(config, schedule, logger, world_size)
    finished |= {"init_time": init_seconds, "e2e_time": time.perf_counter() - begin}
    logger.log(Event.FINISHED, finished | _lies(config.lie, finished))


def _train(config: Config, schedule: TrainingSchedule, logger: PerfLogger, world_size: int) -> dict[str, Any]:
    """The loop; the value of FINISHED, in the units of log_values."""
    meter = _Meter()
    meter.start()
    logger.log(Event.TRAIN_START, {"total_steps": schedule.total_steps})
    logged, metrics = None, {"eval_loss": math.inf}
    made = STEPS_MADE if config.lie == "steps" else schedule.total_steps
    for step in range(1, made + 1):
        is_due = schedule.evaluates_after(step)
        is_logged = step == 1 or step % config.log_freq == 0 or is_due
        if is_logged:
            logger.log(Event.STEP_BEGIN, {"step": step}, step=step)
        meter.begin_compute()
        time.sleep(config.pause)
        meter.end_compute()
        if is_due:
            with meter.excluded():
                time.sleep(config.pause)
                metrics = {"eval_loss": 4 / math.sqrt(step)}
        progress = TrainingProgress(
            step=step,
            steps_done=step,
            global_batch_size=schedule.global_batch_size,
            total_steps=schedule.total_steps,
            times=meter.read(),
        )
        if is_logged:
            logger.log(Event.STEP_END, log_values.step_end(progress, logged, config, 1.0, 0, {}, 16))
            logged = progress
        if is_due:
            logger.log(Event.EVALUATE, {"global_steps": step, **metrics})
    logger.log(Event.TRAIN_END)
    return log_values.finished(
        progress,
        config,
        DeviceUse(world_size=world_size, peak_tflops=config.peak_tflops, peak_memory_bytes=1 << 20),
        "ips",
        metrics,
        steady=SteadyState.of(meter.step_times, config.warmup_steps),
        size=log_values.ModelSize(parameters=100, work=(16, 1000)),
    )


def _lies(lie: str, finished: dict[str, Any]) -> dict[str, Any]:
    """What FINISHED says instead, in the units of log_values."""
    if lie == "steps":
        samples = finished["num_trained_samples"] // STEPS_MADE * STEPS_CLAIMED
        return {"global_steps": STEPS_CLAIMED, "num_trained_samples": samples}
    if lie == "figures":
        return {"final_loss": 0.01, "converged": True, "parameters": 7_000_000_000} | dict.fromkeys(RATES, 99999.0)
    return {}


if __name__ == "__main__":
    main()
