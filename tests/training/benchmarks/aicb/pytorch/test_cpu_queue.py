"""A rank that is late before an operation says how much of that it waited for a CPU."""

import threading
import time
from pathlib import Path

import pytest

from training.benchmarks.aicb.pytorch.running import execution
from training.benchmarks.aicb.pytorch.running.execution import LATE_NS, CpuQueue, EpochSteps, HostRunner, Step
from workloads.oplog.recorder import OpRecorder


class Queue:
    """Answers as if the thread had waited 3 ms for a CPU since the last reading."""

    read_at_ns = 1 << 62

    def waited_ns(self) -> int:
        return 3_000_000

    def read_after(self, end_ns: int) -> int:
        return 0


class LateRecorder(OpRecorder):
    """Loses time after the second operation, before the third is issued."""

    def record(self, op: int, iteration: int, issue_ns: int, done_ns: int) -> None:
        super().record(op, iteration, issue_ns, done_ns)
        if op == 1:
            time.sleep(1.5 * LATE_NS / 1e9)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_late_operation_has_what_its_rank_waited_for_a_cpu(blocking: bool) -> None:
    log = LateRecorder(5)
    runner = HostRunner(log)
    runner._queue = Queue()  # type: ignore[assignment] # what it asks of one
    steps = [Step(place, lambda: None, blocking or place < 3, None) for place in range(4)]
    runner.run(EpochSteps(steps, 4), 1)
    assert log.queued_ns[2] == 3_000_000
    assert log.issue_ns[2] - log.done_ns[1] > LATE_NS


def test_the_kernels_count_is_read_for_the_thread_that_asks() -> None:
    queue = CpuQueue()
    waited, before = queue.waited_ns(), queue.read_at_ns
    assert 0 <= waited < 60e9
    assert 0 <= queue.waited_ns() < 60e9
    assert queue.read_at_ns > before
    kernel = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_bytes()
    assert 0 <= queue._total_ns <= execution._run_delay(kernel)
    queue.close()
    assert queue.waited_ns() == 0


def test_a_wait_between_the_end_of_an_operation_and_the_reading_is_of_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, begin = CpuQueue(), time.monotonic_ns()
    monkeypatch.setattr(execution, "_run_delay", lambda text: queue._total_ns + 10**12)
    assert 0 < queue.read_after(begin) == queue.read_at_ns - begin
    monkeypatch.setattr(execution, "_run_delay", lambda text: queue._total_ns + 5)
    assert queue.read_after(begin) == 5
    queue.close()


def test_a_kernel_that_does_not_count_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(execution, "SCHEDSTAT", tmp_path / "none")
    assert CpuQueue().waited_ns() == 0
    assert [execution._run_delay(text) for text in (b"12 345 6\n", b"0\n", b"1 x 2\n")] == [345, 0, 0]
