"""A pass after a failure says so: in the case's record, its reason, the console's table and the report."""

from pathlib import Path

from run_benchmarks.report.html import write_report
from run_benchmarks.results.records import RoundRecord, Verdict, write_record
from run_benchmarks.results.summary import case_rows
from run_benchmarks.session.retries import earlier_attempts, passed_late
from tests.run_benchmarks.results.rounds import round_record, run_record


def rounds_of(folder: Path) -> list[RoundRecord]:
    """A first round that passed in its third attempt, and a second one at once; the second attempt left no record."""
    case = folder / "ONE"
    for number, name in enumerate(("round1", "round1_try2", "round1_try3", "round2")):
        (case / name).mkdir(parents=True)
        verdict, attempt = (Verdict.FAIL, 1) if name == "round1" else (Verdict.PASS, 3 if number == 2 else 1)
        record = round_record(
            folder / f"files{number}",
            round=2 if name == "round2" else 1,
            attempt=attempt,
            verdict=verdict,
            reason="rank 1 on <b>node1</b>: exit code 7" if verdict is Verdict.FAIL else "all ranks finished",
        )
        if name != "round1_try2":
            write_record(case / name / "round.json", record)
    names = ("round1_try3", "round2")
    return [RoundRecord.model_validate_json((case / name / "round.json").read_bytes()) for name in names]


def test_the_attempts_before_are_named_everywhere(tmp_path: Path) -> None:
    rounds = rounds_of(tmp_path)
    earlier = earlier_attempts(tmp_path / "ONE", rounds)
    assert [(each.round, each.attempt, each.verdict) for each in earlier] == [(1, 1, Verdict.FAIL), (1, 2, None)]
    reason = passed_late(rounds, earlier)
    assert reason.startswith("all rounds passed, round 1 in attempt 3 (attempt 1: fail: rank 1 on ")
    assert "attempt 2: broken off: it left no record" in reason
    assert passed_late(rounds[1:], []) == "all rounds passed"

    run = run_record({}, rounds=["pass", "pass"], attempts=[3, 1], earlier_attempts=earlier, reason=reason)
    assert case_rows(run)[0][2] == "2/2 (1 retried)"
    page = write_report(tmp_path, run, rounds).read_text()
    assert "Round 1, attempt 3: " in page and "Attempt 1: fail: rank 1 on &lt;b&gt;node1&lt;/b&gt;" in page
    assert 'href="ONE/round1_try3/node1_noderank0/rank0.out.log"' in page
    assert 'href="ONE/round1/node1_noderank0' not in page, "that is the attempt that failed"
    assert 'href="ONE/round1/"' in page and 'href="ONE/round2/node1_noderank0/rank0.out.log"' in page
