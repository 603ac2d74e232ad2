"""Writes a run as OpenMetrics text: gauges of each case's metrics and of each host's state, without timestamps.

node_exporter's textfile collector refuses timestamps; `clusterdyno_run_finished_seconds` says when the run was.
"""

from collections.abc import Iterator, Mapping, Sequence

from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import device_of, metrics_of
from run_benchmarks.results.standards import numbers_of

ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def openmetrics(run: LoadedRun) -> str:
    """The text, ended by `# EOF`."""
    record = run.record
    lines = list(_family("clusterdyno_run_finished_seconds", "When the run ended, in seconds since 1970.",
                         [({"run": record.run_id}, record.finished_ms / 1000)]))  # fmt: skip
    verdicts = [({"case": case.name, "verdict": case.verdict.value}, 1.0) for case in record.cases]
    lines += _family("clusterdyno_case_verdict", "1 for the verdict of the case.", verdicts)
    lines += _family("clusterdyno_case_metric", "A metric of the case over its rounds that passed.", _metrics(run))
    hosts = [({"host": host.name, "state": host.state}, 1.0) for host in record.hosts if host.state is not None]
    lines += _family("clusterdyno_host_state", "1 for the state in which the run left the host.", hosts)
    return "\n".join([*lines, "# EOF"]) + "\n"


def _metrics(run: LoadedRun) -> list[tuple[Mapping[str, str], float]]:
    found: list[tuple[Mapping[str, str], float]] = []
    for case in run.record.cases:
        device = device_of(run.passed(case))
        for metric in metrics_of(case):
            values = numbers_of(case.metrics.get(metric.name))
            labels = {"case": case.name, "metric": metric.name, "unit": metric.unit, "device": device}
            if len(values) == 1:
                found.append((labels, values[0]))
    return found


def _family(name: str, meaning: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    """The lines of a gauge; none without samples."""
    if not samples:
        return
    yield f"# TYPE {name} gauge"
    yield f"# HELP {name} {meaning}"
    for labels, value in samples:
        inside = ",".join(f'{key}="{_clean(text)}"' for key, text in labels.items())
        yield f"{name}{{{inside}}} {value!r}"


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode().translate(ESCAPES)
