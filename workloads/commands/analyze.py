"""Analyses the op logs of an executed workload: the verb `analyze`."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial

from common.errors import MistakeList
from common.summary import Summary
from workloads.analysis.analysis import LEAST_ITERATIONS, RunAnalysis, Slowest, analyze
from workloads.analysis.log_comparison import LogComparison, compare_logs
from workloads.analysis.merged import merge
from workloads.oplog.file import OpLog, read_folder

MOST_LINES = 20


def run(arguments: argparse.Namespace) -> Summary:
    """Tell what jitters in one run, or what differs between two.

    Raises:
        AicbError: a log cannot be read.
    """
    mistakes = MistakeList()
    folders = [folder for folder in (arguments.first, arguments.second) if folder is not None]
    logs, *others = [mistakes.result(partial(read_folder, folder)) for folder in folders]
    mistakes.check()
    if others:
        compared = compare_logs(merge(logs), merge(others[0]))
        differs = any(each.differs for each in compared.classes)
        return Summary("\n".join(comparison_lines(compared)), asdict(compared), failed=differs)
    found = analysis_of(logs)
    failed = bool(found.findings or found.late_findings)
    return Summary("\n".join(analysis_lines(found, logs)), found.to_dict(), failed=failed)


def analysis_of(logs: Sequence[OpLog]) -> RunAnalysis:
    """The analysis of one run's logs, with the largest error of their clocks."""
    error = max(log.facts.clock_error_ns for log in logs)
    return analyze(merge(logs), backend=logs[0].facts.backend, clock_error_ns=error)


def analysis_lines(found: RunAnalysis, logs: Sequence[OpLog]) -> Iterator[str]:
    """The lines that an analysis prints."""
    missing = logs[0].facts.world_size - len(logs)
    yield (
        f"{len(found.ranks)} of {logs[0].facts.world_size} ranks, {found.iteration_count} iterations, "
        f"median {found.median_ms:.2f} ms, MAD {found.mad_ms:.2f} ms, clocks within {found.clock_error_ms:.3f} ms"
    )
    if missing > 0:
        yield f"the logs of {missing} ranks are not there: what they delayed looks like a slow collective"
    if found.iteration_count < LEAST_ITERATIONS:
        yield f"no judgement: it takes {LEAST_ITERATIONS} iterations to know what is usual"
    elif not found.findings and not found.late_findings:
        yield "no finding: nothing stands out from the noise of this run"
    for late in found.late_findings:
        yield f"finding: {late}"
    for cell in found.findings[:MOST_LINES]:
        yield f"finding: iteration {cell.iteration}: {cell} (above {cell.threshold_ms:.2f} ms)"
    if len(found.findings) > MOST_LINES:
        yield f"... and {len(found.findings) - MOST_LINES} findings more (--json has all)"
    yield from _iteration_lines(found.iterations)
    yield from ("", f"{'last to arrive':<48} {'rank':>6} {'share':>7} {'late ms':>9} {'operations':>11}")
    for last in sorted(found.last, key=lambda each: -each.lateness_ms * each.share)[:MOST_LINES]:
        name = f"{last.op_class} of {len(last.team)}"
        yield f"{name:<48} {last.rank:>6} {last.share:>7.0%} {last.lateness_ms:>9.3f} {last.operations:>11}"


def _iteration_lines(iterations: Sequence[Slowest]) -> Iterator[str]:
    yield from ("", "slowest iterations, and what they lost against the median of each operation:")
    for each in iterations:
        yield f"iteration {each.iteration}: {each.ms:.2f} ms, {each.excess_ms:+.2f} ms"
        for cell in each.cells[:3]:
            yield f"    {cell}{'' if cell.finding else ' (within the noise)'}"


def comparison_lines(compared: LogComparison) -> Iterator[str]:
    """The lines that a comparison of two runs prints: ms of the first and the second, ratio and its 95 % interval."""
    yield f"{'class':<48} {'A ms':>10} {'B ms':>10} {'B/A':>7} {'95 %':>15}"
    for each in compared.classes:
        interval = f"{each.low:.2f} .. {each.high:.2f}"
        yield (
            f"{each.op_class!s:<48} {each.first_ms:>10.3f} {each.second_ms:>10.3f} {each.ratio:>7.2f} {interval:>15}"
            f"{'  differs' if each.differs else ''}"
        )
    for name, only in (("A", compared.only_first), ("B", compared.only_second)):
        for op_class in only:
            yield f"only in {name}: {op_class}"
