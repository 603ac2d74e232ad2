"""Runs the epochs of an assembled workload one after the other, and reports how far it is."""

from functools import partial

from protocol import pulse
from protocol.perflog import Event
from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.running.assembly import Assembled, StepMaker
from training.benchmarks.aicb.pytorch.running.device_runner import DeviceRunner, DeviceTimeline
from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, HostRunner, Runner, synchronised
from training.benchmarks.aicb.pytorch.work.classes import OpClasses
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.run_context import WorkloadContext
from workloads.oplog.recorder import OpRecorder
from workloads.rows.ops import LogItem


def executed(run: WorkloadContext[Config], assembled: Assembled, kinds: OpClasses) -> tuple[OpRecorder, list[int]]:
    """The operations of this rank, and the ns of each epoch, the set-up first.

    Every rank sums up its iterations by their `kinds`, so that none is later than the others; rank 0 logs that.
    """
    config, logger, epochs = run.config, run.logger, assembled.stream.epochs
    count = len(epochs) - 1 if config.iterations is None or len(epochs) == 1 else config.iterations
    numbers = [0, *(1 + each % (len(epochs) - 1) for each in range(count))]
    device = run.group.device
    is_device = is_accelerator(device)
    is_each = config.timing == "each"
    wait = partial(synchronised, synchronize=accelerators(device).synchronize) if is_device and is_each else None
    maker = StepMaker(assembled, wait, in_batches=assembled.in_batches)
    steps = {number: maker.epoch(number) for number in dict.fromkeys(numbers)}
    recorder = OpRecorder(sum(steps[number].records for number in numbers))
    runner: Runner = (
        DeviceRunner(recorder, DeviceTimeline.on(device), HostRunner(recorder) if is_each else None)
        if is_device
        else HostRunner(recorder)
    )
    progress = Progress(runner, recorder, assembled, is_device=is_device)
    is_first = run.group.placement.rank == 0
    logger.log(Event.TRAIN_START, {"total_steps": count} | ({"classes": kinds.recorded()} if is_first else {}))
    times: list[int] = []
    pulse.describe(progress.words)
    try:
        for step, number in enumerate(numbers):
            progress.begin(number, steps[number])
            place = {"step": step, "total_steps": count}
            if step:
                logger.log(Event.STEP_BEGIN, place)
            slot = recorder.count
            times.append(runner.run(steps[number], step))
            if step:
                own = kinds.iteration(recorder, slot)
                logger.log(Event.STEP_END, place | {"iteration_ms": times[-1] / 1e6} | (own if is_first else {}))
    finally:
        pulse.describe(None)
        runner.close()
    logger.log(Event.TRAIN_END)
    return recorder, times


class Progress:
    """Says in which operation this rank is: `op 1,204 all_gather_into_tensor tp, forward.layer7`."""

    def __init__(self, runner: Runner, recorder: OpRecorder, run: Assembled, *, is_device: bool = False) -> None:
        self._runner, self._recorder, self._run, self._is_device = runner, recorder, run, is_device
        self._epoch: tuple[int, EpochSteps, int] | None = None

    def begin(self, number: int, steps: EpochSteps) -> None:
        """An epoch begins."""
        self._epoch = number, steps, self._recorder.count

    def words(self, waits_in: str | None) -> str | None:
        """The operation in which the main thread waits; `waits_in`: torch's function that it is in, if any. With a
        device it waits for that in functions of other names.

        A thread of its own asks, every two seconds: the operations themselves pay nothing for it.
        """
        if self._epoch is None:
            return waits_in
        number, steps, before = self._epoch
        position = self._runner.waits_for()
        if position is None:
            done = self._recorder.count - before
            if (waits_in is None and not self._is_device) or not 0 <= done < len(steps.steps):
                return waits_in
            position = steps.steps[done].position
        epoch = self._run.stream.epochs[number]
        item, call = self._run.stream.at(epoch, position - epoch.first)
        return f"op {position:,} {item.comm_type.name if call is None else call.words()}, {place_of(item)}"


def place_of(item: LogItem) -> str:
    """Where in the training step a row stands: its stage, and its module where it has one."""
    return f"{item.stage} {item.module}" if item.module else item.stage
