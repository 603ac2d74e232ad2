"""What a whole run says of itself when a signal comes late."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from run_benchmarks.interruption import EXIT_INTERRUPTED, Interruption
from run_benchmarks.plan import CasePlan
from run_benchmarks.preparation import new_run_id, prepare
from run_benchmarks.results.records import RoundRecord, RunRecord, Verdict
from run_benchmarks.schedule import Schedule
from run_benchmarks.session import Session
from tests.run_benchmarks.conftest import TEST, Load


def test_a_signal_while_the_last_round_is_collected(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round keeps its verdict, the run was interrupted all the same."""
    folders = {"FLAGPERF_PATH_HOST": str(tmp_path / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(tmp_path / "logs")}
    values = "".join(f"{key} = {value!r}\n" for key, value in folders.items())
    settings = load(f"{TEST}ONE['overrides'] = {{'sizes': '8', 'iterations': 1}}\n{values}")
    run_round = Schedule.run_round

    def interrupted(self: Schedule, case: CasePlan, index: int) -> RoundRecord:
        record = run_round(self, case, index)
        os.kill(os.getpid(), signal.SIGTERM)
        return record

    monkeypatch.setattr(Schedule, "run_round", interrupted)
    result = tmp_path / "result"
    result.mkdir()
    with Interruption("clean") as interruption:
        Session(prepare(settings, new_run_id()), result, interruption, ["run.py"]).run()
    record = RunRecord.model_validate_json((result / "run.json").read_bytes())
    assert (record.verdict, record.exit_code) == (Verdict.ABORTED, EXIT_INTERRUPTED)
    assert [(case.verdict, case.rounds) for case in record.cases] == [(Verdict.PASS, [Verdict.PASS])]
    assert (result / "report.html").is_file()
