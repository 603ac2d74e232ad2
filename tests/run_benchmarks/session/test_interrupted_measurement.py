"""Ctrl-C while a case measures: its steps and figures stay in the records, marked as partial."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from run_benchmarks.commands.verification import verify
from run_benchmarks.results.records import RoundRecord, Verdict
from tests.run_benchmarks.conftest import Load
from tests.run_benchmarks.local_run import texts
from tests.run_benchmarks.session.test_session import run, settings_of

DEADLINE_S = 120.0


def _interrupt_after_a_step(logs: Path) -> None:
    """Send this process what Ctrl-C sends, once rank 0 has logged a step."""
    for _ in range(int(DEADLINE_S / 0.05)):
        if any('"STEP_END"' in text for text in texts(logs, "rank0.out.log")):
            break
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.nightly
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, load: Load) -> None:
    settings = settings_of(load, tmp_path, "ONE['overrides'] = {'sizes': '8..64M x2', 'iterations': 2000}")
    folder = tmp_path / "result"
    watcher = threading.Thread(target=_interrupt_after_a_step, args=(tmp_path / "logs",))
    watcher.start()
    record = run(settings, folder)
    watcher.join()
    folder = folder.rename(tmp_path / record.run_id)
    (case,) = record.cases
    assert record.verdict is case.verdict is Verdict.ABORTED and case.metrics == {}
    round_ = RoundRecord.model_validate_json((folder / case.folder / "round1/round.json").read_bytes())
    assert round_.verdict is Verdict.ABORTED
    assert round_.partial is not None and round_.partial.total_steps == 24
    assert 1 <= round_.partial.completed_steps == len(round_.steps) < 24
    assert round_.metrics["partial"] is True and round_.metrics["max_algbw_GBps"] > 0
    assert f"Partial result: {round_.partial} were measured" in (folder / "report.html").read_text()
    assert verify(folder).problems == []
