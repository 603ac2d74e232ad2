"""Runs a stream on a CUDA device: the host issues without waiting, and times are read when the iteration is over."""

from dataclasses import dataclass

import torch.distributed as dist

from training.benchmarks.aicb.pytorch.running.device_timeline import DeviceTimeline
from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, Runner, Step
from workloads.oplog.recorder import WAITED, OpRecorder


@dataclass(slots=True)
class _Seen:
    """An executed call: slot in the log; wait: when the program began to wait for it, None for a blocking one."""

    position: int
    slot: int
    issued: int
    end: int
    wait: int | None = None


class DeviceRunner(Runner):
    """Runs epochs over NCCL. each: runs those whose calls all return when the device has executed them."""

    def __init__(self, log: OpRecorder, line: DeviceTimeline, each: Runner | None = None) -> None:
        self._log, self._line, self._each = log, line, each
        self._under_way: list[_Seen] = []
        self._steps: list[Step] = []
        self._begun = 0

    def close(self) -> None:
        if self._each is not None:
            self._each.close()

    def waits_for(self) -> int | None:
        """Position of the first call that has not ended, else of the one that the host is in; None after all."""
        for call in list(self._under_way):
            if not self._line.has_come(call.end):
                return call.position
        # Nothing is noted of the call that the host is in.
        return self._steps[self._begun].position if self._begun < len(self._steps) else None

    def run(self, epoch: EpochSteps, iteration: int) -> int:
        if self._each is not None and all(step.is_blocking and not step.others for step in epoch.steps):
            self._steps = []
            return self._each.run(epoch, iteration)
        self._steps, self._begun = epoch.steps, 0
        begin, end = self._streamed(epoch, iteration)
        self._log.record(epoch.end, iteration, begin, end)
        return end - begin

    def _streamed(self, epoch: EpochSteps, iteration: int) -> tuple[int, int]:
        line, log = self._line, self._log
        pending: dict[int, tuple[dist.Work, _Seen]] = {}
        start = line.begin()
        for index, step in enumerate(epoch.steps):
            issued = line.mark()
            work = step.issue()
            if step.is_blocking:
                end = line.mark()
                for position in (step.position, *step.others):
                    self._under_way.append(_Seen(position, log.issued(position, iteration, 0), issued, end))
            elif work is not None:
                call = _Seen(
                    step.position, log.issued(step.position, iteration, 0), issued, line.ending(step.key, work)
                )
                self._under_way.append(call)
                pending[index] = work, call
            self._begun = index + 1
            for each in step.waits:
                work, call = pending.pop(each)
                self._wait(work, call)
        last = line.mark()
        line.finish()
        for call in self._under_way:
            self._written(call)
        self._under_way = []
        return line.ns(start), line.ns(last)

    def _wait(self, work: dist.Work, call: _Seen) -> None:
        call.wait = self._line.mark()
        work.wait()

    def _written(self, call: _Seen) -> None:
        line = self._line
        issued, done = line.ns(call.issued), line.ns(call.end)
        # An event may be noted in the step of the device's clock before that of the issue.
        done = max(issued, done)
        exposed = WAITED if call.wait is None else min(done - issued, max(0, done - line.ns(call.wait)))
        self._log.issue_ns[call.slot] = issued
        self._log.finished(call.slot, done, exposed)
