"""The exit codes of `run.py`, and which of them a verdict gives."""

from __future__ import annotations

from run_benchmarks.results.records import Verdict

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_CHECK = 0, 1, 2, 3
EXIT_INTERRUPTED = 130


def exit_code(verdict: Verdict) -> int:
    """0 only if every case passed; an interrupted run and a failed one differ."""
    if verdict is Verdict.PASS:
        return EXIT_PASS
    return EXIT_INTERRUPTED if verdict is Verdict.ABORTED else EXIT_FAIL
