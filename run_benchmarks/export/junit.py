"""Writes a run as JUnit XML: a suite per case, a test per round; a finding or a limit that is not met is a failure."""

from datetime import UTC, datetime
from xml.etree import ElementTree

from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import CaseRecord, RoundRecord, Verdict


def junit(run: LoadedRun) -> str:
    """The run as the XML that CI systems read (the schema of Jenkins' xUnit plugin)."""
    root = ElementTree.Element("testsuites", name=_text(run.record.run_id))
    for case in run.record.cases:
        root.append(_suite(run, case))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _suite(run: LoadedRun, case: CaseRecord) -> ElementTree.Element:
    rounds = run.rounds[case.name]
    suite = ElementTree.Element("testsuite", name=_text(case.name))
    tests = [_test(case, each) for each in rounds]
    is_of_limits = case.verdict.is_failure and all(each.verdict.is_measured for each in rounds)
    if is_of_limits or not rounds:  # no round says why
        tests.append(_whole(case))
    begun = datetime.fromtimestamp(min((each.started_ms for each in rounds), default=run.record.started_ms) / 1000, UTC)
    suite.set("timestamp", begun.strftime("%Y-%m-%dT%H:%M:%S"))
    suite.set("time", f"{sum(each.finished_ms - each.started_ms for each in rounds) / 1000:.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(case).items():
        ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(tests)
    suite.set("tests", str(len(tests)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(test.find(tag) is not None for test in tests)))
    return suite


def _properties(case: CaseRecord) -> dict[str, str]:
    found = {"model": case.model, "framework": case.framework, "verdict": case.verdict.value}
    if case.key is not None:
        found |= {"metric": case.key.metric, "value": f"{case.key.value:.6g}", "unit": case.key.unit}
    return found


def _test(case: CaseRecord, record: RoundRecord) -> ElementTree.Element:
    seconds = (record.finished_ms - record.started_ms) / 1000
    test = _element(case, f"round {record.round}", seconds)
    _judge(test, record.verdict, record.reason)
    if record.first_failure is not None:
        ElementTree.SubElement(test, "system-out").text = _text(str(record.first_failure.message))
    return test


def _whole(case: CaseRecord) -> ElementTree.Element:
    """The case as a test of its own, where no round says why it did not pass."""
    test = _element(case, "the whole case", 0.0)
    _judge(test, case.verdict, case.reason)
    return test


def _element(case: CaseRecord, name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=_text(case.name), name=name, time=f"{seconds:.3f}")


def _judge(test: ElementTree.Element, verdict: Verdict, reason: str) -> None:
    tags = {Verdict.PASS: "", Verdict.SKIPPED: "skipped", Verdict.ABORTED: "error", Verdict.TIMEOUT: "error"}
    if tag := tags.get(verdict, "failure"):
        said = ElementTree.SubElement(test, tag, message=_text(reason))
        if tag != "skipped":
            said.set("type", verdict.value)


def _text(text: str) -> str:
    """Text without what XML 1.0 forbids."""
    return "".join(letter if letter in "\t\n\r" or " " <= letter <= "\ud7ff" or "\ue000" <= letter <= "\ufffd"
                   or letter > "\uffff" else "?" for letter in text)  # fmt: skip
