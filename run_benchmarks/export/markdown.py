"""Writes a run as a table in Markdown, with why a case did not pass and which hosts to take out of service."""

import re

from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.summary import show

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def markdown(run: LoadedRun) -> str:
    """A heading, a row for each case with its key figure, the reasons, the drain list."""
    record = run.record
    lines = [f"## {_text(record.run_id)}: {record.verdict.value}", ""]
    lines += ["| case | verdict | metric | value | of expected |", "|---|---|---|---:|---:|"]
    for case in record.cases:
        key = case.key
        value = "" if key is None else f"{show(float(key.value))} {key.unit}".strip()
        percent = "" if key is None or key.percent_of_expected is None else f"{key.percent_of_expected:.1f} %"
        cells = (case.name, case.verdict.value, key.metric if key else "", value, percent)
        lines.append(f"| {' | '.join(map(_text, cells))} |")
    reasons = [f"- {_text(case.name)}: {_text(case.reason)}" for case in record.cases if case.reason]
    drained = [f"- {_text(each.host)}: {_text('; '.join(each.reasons))}" for each in record.drain]
    lines += ["", *reasons] if reasons else []
    lines += ["", "Take out of service:", "", *drained] if drained else []
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Text of anybody in one line, of which Markdown makes nothing."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))
