"""A run that measures everything and finds a bad part: its verdict, its exit code, and where it is told."""

from pathlib import Path

import pytest

from run_benchmarks.commands.starting import show_run
from run_benchmarks.commands.verification import verify
from run_benchmarks.results.records import RoundRecord, RunRecord, Verdict, write_record
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.session.session import Session
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import BaselineTarget
from tests.run_benchmarks.conftest import Load
from tests.run_benchmarks.session.test_session import run, settings_of

# No loopback moves a terabyte a second.
MISSED = "ONE['overrides'] = {'sizes': '8, 64K', 'iterations': 2, 'warmup_iterations': 1, 'expected_link': 1000.0}"


def test_a_link_below_the_expected_one_degrades_the_run(
    tmp_path: Path, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "result"
    record = run(settings_of(load, tmp_path, MISSED), folder)
    folder = folder.rename(tmp_path / record.run_id)
    assert (record.verdict, record.exit_code) == (Verdict.DEGRADED, 1)
    (case,) = record.cases
    assert (case.verdict, case.rounds) == (Verdict.DEGRADED, [Verdict.DEGRADED])
    assert "below expected_link" in case.reason and "below expected_link" in " ".join(case.sentences)
    assert case.metrics["measured_over_expected"] < 0.01
    round_ = RoundRecord.model_validate_json((folder / case.folder / "round1/round.json").read_bytes())
    (finding,) = round_.findings
    assert (finding.kind, finding.part, finding.hosts, finding.severity) == (
        "below_expected",
        "group",
        ("localhost",),
        "fault",
    )
    assert finding.share_of_expected == pytest.approx(case.metrics["measured_over_expected"])
    assert record.drain == [], "a slow link accuses no host"
    assert verify(folder).problems == []
    page = (folder / "report.html").read_text()
    assert '<span class="badge warn">▲ degraded</span>' in page and finding.suggested_action.partition(",")[0] in page
    show_run(record, folder)
    assert "below expected_link" in " ".join(capsys.readouterr().out.split())
    _verify_notices_changes(folder, record)


def _verify_notices_changes(folder: Path, record: RunRecord) -> None:
    def problems(changed: RunRecord) -> str:
        write_record(folder / "run.json", changed)
        return "\n".join(verify(folder).problems)

    assert "exit code 0 does not follow from verdict degraded" in problems(record.model_copy(update={"exit_code": 0}))
    assert "take out of service" in problems(
        RunRecord.model_validate({**record.model_dump(), "drain": [{"host": "node3", "reasons": ["made up"]}]})
    )
    write_record(folder / "run.json", record)
    file = folder / record.cases[0].folder / "round1/round.json"
    round_ = RoundRecord.model_validate_json(file.read_bytes())
    write_record(file, round_.model_copy(update={"findings": []}))
    assert "verdict degraded does not follow from 0 findings" in "\n".join(verify(folder).problems)


@pytest.mark.nightly
def test_a_run_that_is_degraded_is_no_baseline(tmp_path: Path, load: Load) -> None:
    settings = settings_of(load, tmp_path, f"{MISSED}\nFAIL_ON = ()")
    folder, file = tmp_path / "result", tmp_path / "baseline.json"
    folder.mkdir()
    with Interruption("clean") as interruption:
        session = Session(prepare(settings, new_run_id()), folder, interruption, ["run.py"], BaselineTarget(file=file))
        record = session.run()
    assert record.verdict is Verdict.DEGRADED and record.exit_code == 0
    assert not file.exists() and "verdict degraded" in session.not_saved
    assert session.exit_code(record) == 1
