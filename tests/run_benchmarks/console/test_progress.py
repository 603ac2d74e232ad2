"""The live line of a round: whatever rank 0 writes, in bounded memory, and nobody who asks waits for it."""

import json
import threading
import tracemalloc

import pytest

from protocol.perflog import PerfLogRecord, parse_line
from run_benchmarks.console import progress as module
from run_benchmarks.console.progress import LiveProgress
from tests.run_benchmarks.results.hostile import logs
from tests.run_benchmarks.results.rounds import perflog


def test_the_line_follows_the_log_however_it_is_cut() -> None:
    data = perflog(0, {"correct": "pass"}).encode()
    for size in (1, 7, 100, len(data)):
        progress = LiveProgress("ONE", 1, 2)
        for start in range(0, len(data), size):
            progress.feed(data[start : start + size])
        assert progress.line().startswith(
            "ONE round 1/2 | finished | step 1 | busbw_GBps 0.15 | size_bytes 1024 | elapsed"
        )


def test_a_step_that_is_no_number_is_counted() -> None:
    lines = [line for line in perflog(0, {}).splitlines(keepends=True) if "STEP_END" in line]
    for value in ('{"step": true}', '{"step": "7"}', '{"step": [1], "total_steps": false}'):
        record = json.loads(lines[0].removeprefix("[PerfLog] ")) | {"value": json.loads(value)}
        progress = LiveProgress("ONE", 1, 1)
        progress.feed(f"[PerfLog] {json.dumps(record)}\n".encode())
        assert progress.line().startswith("ONE round 1/1 | starting | step 1 | elapsed")


def test_a_progress_bar_without_line_ends_is_not_kept() -> None:
    progress = LiveProgress("ONE", 1, 1)
    bar = b"\r 50 %|#####     |" * 3641
    tracemalloc.start()
    try:
        for _ in range(512):  # 32 MB
            progress.feed(bar)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_who_asks_does_not_wait_for_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch loop asks for the line while the following thread reads a record that takes long."""
    reading, asked = threading.Event(), threading.Event()

    def slow(line: str) -> PerfLogRecord | None:
        reading.set()
        assert asked.wait(10), "the line could not be had meanwhile"
        return parse_line(line)

    monkeypatch.setattr(module, "parse_line", slow)
    progress = LiveProgress("ONE", 1, 1)
    thread = threading.Thread(target=progress.feed, args=(perflog(0, {}).encode(),))
    thread.start()
    assert reading.wait(10)
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(progress.line()), daemon=True)
    asking.start()
    asking.join(5)
    asked.set()
    thread.join(20)
    assert answers and answers[0].startswith("ONE round 1/1 | starting")


def test_no_log_breaks_it() -> None:
    for log in logs().values():
        progress = LiveProgress("ONE", 1, 1)
        progress.feed(log)
        progress.line()
