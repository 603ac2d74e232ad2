"""Reading a rank's log: nothing in it is fatal, everything wrong in it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_benchmarks.errors import TAIL_LINES
from run_benchmarks.results.rank_logs import read_rank_log
from tests.run_benchmarks.results.rounds import STEP, perflog
from training.benchmarks.driver.perflog import Event


def test_a_whole_log(tmp_path: Path) -> None:
    (tmp_path / "rank3.out.log").write_text(perflog(3, {"correct": "pass"}))
    log = read_rank_log(tmp_path, 3)
    assert (log.rank, log.problems, log.torn) == (3, (), None)
    assert len(log.records) == 8
    assert log.value(Event.FINISHED) == {"correct": "pass"}
    assert log.values(Event.STEP_END) == [STEP]
    assert log.value(Event.EVALUATE) is None
    assert log.value(Event.INIT_START) is None
    assert log.tail.startswith("an ordinary line")


def test_a_missing_log_is_a_problem(tmp_path: Path) -> None:
    log = read_rank_log(tmp_path, 0)
    assert log.records == ()
    assert "no log" in log.problems[0]
    assert "rank0.out.log" in log.problems[0]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_told_and_the_rest_is_kept(tmp_path: Path, cut: int) -> None:
    text = perflog(0, {"correct": "pass"})
    (tmp_path / "rank0.out.log").write_text(text[:-cut])
    log = read_rank_log(tmp_path, 0)
    assert len(log.records) == 7
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
    assert len(log.records) == 8
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
