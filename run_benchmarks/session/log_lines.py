"""Logs what a check found, how a round ended, and what a case does not meet."""

from collections.abc import Mapping

from run_benchmarks.console.console import LOG
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.results.records import CaseRecord, RoundRecord, Verdict


def log_standards(case: CaseRecord) -> None:
    """Log the limits that a case does not meet, what is worse than the baseline, and what could not be compared."""
    broken = [each.sentence for each in case.expectations if not each.met]
    if case.baseline is not None and case.baseline.is_below:
        broken += case.baseline.sentences
    for sentence in broken:
        LOG.error("Testcase %s: %s", case.name, sentence)
    if case.prediction is not None:
        said = case.prediction.sentences[:1] or [f"Not predicted: {case.prediction.problem}."]
        LOG.info("Testcase %s: %s", case.name, said[0])
    for warning in case.warnings:
        LOG.warning("Testcase %s: %s", case.name, warning)


def log_findings(reports: Mapping[str, HostReport]) -> None:
    """Log every finding of the check, failures as errors."""
    for report in reports.values():
        for finding in report.findings:
            (LOG.error if finding.severity == "failure" else LOG.warning)("%s", finding)


def log_round(record: RoundRecord) -> None:
    """Log how a round ended, with the end of the log that shows why."""
    for warning in record.warnings:
        LOG.warning("%s", warning)
    if record.verdict.is_measured:
        again = f" in attempt {record.attempt}" if record.attempt > 1 else ""
        also = again + record.verdict_text.removeprefix(record.verdict)
        mark = "SUCCESS" if record.verdict is Verdict.PASS else "DEGRADED"
        LOG.info("-== Testcase %s Round %d finished%s ==-......[%s]", record.case, record.round, also, mark)
        for finding in record.findings:
            LOG.warning("Finding (%s, %s): %s", finding.severity, finding.kind, finding.words)
        for remark in record.told_remarks:
            LOG.warning("%s", remark)
        return
    LOG.error(
        "-== Testcase %s Round %d: %s: %s ==-......[FAILED]", record.case, record.round, record.verdict, record.reason
    )
    if record.partial is not None:
        LOG.warning("Partial result: %s were measured, and are in its round.json", record.partial)
    if record.first_failure is not None and record.first_failure.log_tail:
        LOG.error("end of the log:\n%s", record.first_failure.log_tail)
