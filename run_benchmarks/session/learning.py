"""Saves what a run that passed measured as a baseline, and identifies the baseline that a run is compared with."""

from pathlib import Path

from common.reading import sha256_of
from protocol.baseline_file import BaselineError, load, save
from run_benchmarks.console.console import LOG
from run_benchmarks.results.outcomes import failure
from run_benchmarks.results.records import RunRecord, Verdict
from run_benchmarks.session.run_record import RunRecorder
from run_benchmarks.settings.run import TestConf
from run_benchmarks.state.exit_codes import EXIT_PASS
from run_benchmarks.state.journal import BaselineInUse


def save_baseline(recorder: RunRecorder, record: RunRecord, file: Path) -> str:
    """Write the run's measurements to `file`; returns "", or the reason why nothing was written."""
    if record.exit_code != EXIT_PASS or record.verdict is not Verdict.PASS:
        return _not_written(file, f"the run ended with verdict {record.verdict}")
    try:
        found = recorder.learned()
    except Exception as error:  # noqa: BLE001 - a benchmark's own code, on what hosts sent
        return f"--save-baseline {file}: not written: {failure(error)}"
    if not found:
        return _not_written(file, "the run measured nothing that a baseline keeps")
    try:
        save(found, file)
    except BaselineError as error:
        return f"--save-baseline {error}"
    for case in record.cases:
        if case.name not in {each.case for each in found}:
            LOG.warning("Baseline: %s is not in %s: it measured nothing that a baseline keeps", case.name, file)
    LOG.info("Baseline: %s, %d measurements of %d cases", file, sum(len(each.entries) for each in found), len(found))
    return ""


def baseline_in_use(test: TestConf) -> BaselineInUse | None:
    """The file of BASELINE and its present content; None without it.

    Raises:
        OSError: the file cannot be read.
    """
    if test.BASELINE is None:
        return None
    return BaselineInUse(file=str(test.BASELINE), sha256=sha256_of(test.BASELINE), percent=test.BASELINE_PERCENT)


def is_baseline_of(file: Path, run: str) -> bool:
    """Whether `file` is a baseline of this run, saved before its controller was killed."""
    try:
        return {each.run for each in load(file).cases} == {run}
    except BaselineError:
        return False


def _not_written(file: Path, why: str) -> str:
    return f"--save-baseline {file}: not written: {why}; a baseline is what a run that passed measured"
