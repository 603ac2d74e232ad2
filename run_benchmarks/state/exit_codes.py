"""The exit codes of `run.py`, and which of them a verdict gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.finding import PartFinding
    from run_benchmarks.results.verdict import Verdict

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_CHECK = 0, 1, 2, 3
EXIT_INTERRUPTED = 130


def exit_code(verdict: Verdict, findings: Iterable[PartFinding] = (), fail_on: Sequence[str] = ()) -> int:
    """0 only if every case passed, or was degraded by `findings` none of which is of a kind or severity in `fail_on`.

    An interrupted run and a failed one differ.
    """
    from run_benchmarks.results.verdict import Verdict  # whose package takes long to import

    if verdict is Verdict.PASS or (verdict is Verdict.DEGRADED and not any(f.is_among(fail_on) for f in findings)):
        return EXIT_PASS
    return EXIT_INTERRUPTED if verdict is Verdict.ABORTED else EXIT_FAIL
