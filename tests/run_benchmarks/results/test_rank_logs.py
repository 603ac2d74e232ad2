"""Reading a rank's log: nothing in it is fatal, everything wrong in it is told."""

import os
import re
import tracemalloc
from pathlib import Path

import pytest

from protocol.perflog import MAX_TOLD, Event
from run_benchmarks.errors import TAIL_LINES
from run_benchmarks.results import rank_logs
from run_benchmarks.results.rank_logs import rank_log_end, read_rank_log
from tests.run_benchmarks.results.rounds import START_MS, STEP, perflog


def test_a_whole_log(tmp_path: Path) -> None:
    (tmp_path / "rank3.out.log").write_text(perflog(3, {"correct": "pass"}))
    log = read_rank_log(tmp_path, 3)
    assert (log.rank, log.problems, log.torn) == (3, (), None)
    assert log.counts.total() == 8
    assert log.value(Event.FINISHED) == {"correct": "pass"}
    assert log.steps == [STEP]
    assert log.value(Event.EVALUATE) is None
    assert log.value(Event.INIT_START) is None
    assert log.tail.startswith("an ordinary line")


def test_a_missing_log_is_a_problem(tmp_path: Path) -> None:
    log = read_rank_log(tmp_path, 0)
    assert log.latest == {}
    assert "no log" in log.problems[0]
    assert "rank0.out.log" in log.problems[0]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_told_and_the_rest_is_kept(tmp_path: Path, cut: int) -> None:
    text = perflog(0, {"correct": "pass"})
    (tmp_path / "rank0.out.log").write_text(text[:-cut])
    log = read_rank_log(tmp_path, 0)
    assert log.counts.total() == 7
    assert log.torn is not None
    assert text.endswith(log.torn + text[-cut:])
    assert not any("cut off" in problem for problem in log.problems)
    assert any("FINISHED must stand exactly once" in problem for problem in log.problems)


def test_ordinary_output_without_a_line_end_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "rank0.out.log").write_text(perflog(0, {}) + "done")
    log = read_rank_log(tmp_path, 0)
    assert (log.problems, log.torn) == ((), None)


def test_bad_lines_are_told_and_skipped(tmp_path: Path) -> None:
    lines = perflog(0, {}).splitlines()
    lines[3:3] = ["[PerfLog] {nonsense", '[PerfLog] {"event": "NO_SUCH"}', "\ufffd binary"]
    (tmp_path / "rank0.out.log").write_bytes("\n".join(lines).encode().replace("\ufffd".encode(), b"\xff\x00") + b"\n")
    log = read_rank_log(tmp_path, 0)
    assert log.counts.total() == 8
    assert len(log.problems) == 2
    assert "nonsense" in log.problems[0]
    assert "NO_SUCH" in log.problems[1]


def test_broken_rules_are_told(tmp_path: Path) -> None:
    (tmp_path / "rank0.out.log").write_text(perflog(0, {}, until=Event.STEP_BEGIN))
    problems = "\n".join(read_rank_log(tmp_path, 0).problems)
    assert "FINISHED must stand exactly once" in problems
    assert "the last STEP_BEGIN has no STEP_END" in problems


def test_the_tail_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "rank0.out.log").write_text("".join(f"line {number}\n" for number in range(1000)))
    tail = read_rank_log(tmp_path, 0).tail.splitlines()
    assert len(tail) == TAIL_LINES
    assert tail[-1] == "line 999"


def test_a_large_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """64 MB, half of them in lines, half in a progress bar without a line end."""
    before, after = perflog(0, {"correct": "pass"}).split("an ordinary line\n")[1].split("\n", 1)
    with (tmp_path / "rank0.out.log").open("w") as file:
        file.write(f"{before}\n")
        for _ in range(32):
            file.write("an ordinary line of output, as long as such lines are in most logs of most ranks\n" * 12_483)
        for _ in range(32):
            file.write("\r 50 %|#####     |" * 58_254)
        file.write(f"\n{after}")
    tracemalloc.start()
    try:
        log = read_rank_log(tmp_path, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (log.problems, log.counts.total()) == ((), 8)
    assert log.tail.count("\n") < TAIL_LINES
    assert peak < 8 << 20


def test_steps_beyond_the_bound_are_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rank0.out.log").write_text(many_steps(10))
    monkeypatch.setattr(rank_logs, "MAX_STEPS", 7)
    log = read_rank_log(tmp_path, 0)
    assert (log.problems, len(log.steps), log.counts[Event.STEP_END]) == ((), 7, 10)
    assert log.cut[0].startswith("3 of 10 steps are not in this record")
    assert read_rank_log(tmp_path, 0, with_steps=False).cut == ()
    monkeypatch.setattr(rank_logs, "MAX_STEP_MEMORY", 2000)
    log = read_rank_log(tmp_path, 0)
    assert 0 < len(log.steps) < 4 and f"{10 - len(log.steps)} of 10 steps" in log.cut[0]


def many_steps(count: int) -> str:
    """A log that keeps all rules, of so many steps."""
    lines = perflog(0, {"correct": "pass"}).splitlines(keepends=True)
    begin = next(index for index, line in enumerate(lines) if "STEP_BEGIN" in line)
    steps = [re.sub(r'"time_ms": \d+', f'"time_ms": {START_MS + 5}', line) for line in lines[begin : begin + 2]]
    return "".join([*lines[:begin], *steps * count, *lines[begin + 2 :]])


def test_a_perflog_line_that_is_too_long_is_told_with_its_size(tmp_path: Path) -> None:
    line = f'[PerfLog] {{"event": "EVALUATE", "value": "{"x" * (5 << 20)}"}}\n'
    (tmp_path / "rank0.out.log").write_text(line + perflog(0, {"correct": "pass"}))
    log = read_rank_log(tmp_path, 0)
    assert log.counts.total() == 8
    assert log.problems[0].startswith(
        f'a PerfLog line of {len(line) - 1} bytes; allowed: 4194314: \'[PerfLog] {{"event"'
    )


def test_of_a_million_bad_lines_a_few_are_told(tmp_path: Path) -> None:
    (tmp_path / "rank0.out.log").write_text("[PerfLog] rubbish\n" * 10_000 + perflog(0, {"correct": "pass"}))
    log = read_rank_log(tmp_path, 0)
    assert len(log.problems) == MAX_TOLD + 1 and log.problems[-1] == "and 9980 more lines that are no record"


def test_after_too_many_bad_lines_nothing_more_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a line costs fifty times an ordinary one: a gigabyte of them held the controller up for minutes."""
    monkeypatch.setattr(rank_logs, "MAX_BAD", 100)
    (tmp_path / "rank0.out.log").write_text("[PerfLog] {\n" * (MAX_TOLD + 150) + perflog(0, {"correct": "pass"}))
    log = read_rank_log(tmp_path, 0)
    assert log.cut == ("nothing is read after 100 lines that are no record",) and log.torn is None
    assert "and 100 more lines that are no record" in log.problems and log.value(Event.FINISHED) is None


def test_a_fifo_or_folder_in_the_log_s_place_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.out.log")
    assert read_rank_log(tmp_path, 0).problems != ()
    (tmp_path / "rank1.out.log").mkdir()
    assert "no log" in read_rank_log(tmp_path, 1).problems[0]
    assert (rank_log_end(tmp_path, 0, 100), rank_log_end(tmp_path, 1, 100)) == ("", "")


def test_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "rank0.out.log").write_text("a\nb\nc\n")
    assert rank_log_end(tmp_path, 0, 4) == "b\nc\n"
    assert rank_log_end(tmp_path, 1, 4) == ""
