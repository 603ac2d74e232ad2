"""Seconds that each test file may take, the order that follows from them, and what took longer.

A pytest plugin of tests/conftest.py. The files with the largest budgets begin, so that no worker is left with a long
one at the end.
The files that spent most CPU are named, too: on two cores they decide how long all take.
`--short` (make quick has it) leaves out the files whose budget is larger than the default.
`--check-budgets` (make test has it) names each file that took longer than its budget, and fails the session, with the
file's name, where one took more than FACTOR times its budget and SLACK seconds, budgets being as much larger as the
other files that have one exceed theirs: a machine that is slow or busy passes, a file that has grown out of all
proportion does not.
"""

from __future__ import annotations

import functools
import os
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("budgets.toml")
FACTOR = 5.0
SLACK = 60.0
OPTION = "--check-budgets"
SHORT_OPTION = "--short"
CPU = "CPU seconds"
MOST_CPU = 20
# Engines and hosts end with the last test of a worker, whose own they are not.
SHARED = "what tests share"


class Budgets:
    """Budgets in seconds by test file (relative to the repository), and what each file has taken so far."""

    def __init__(self, seconds: dict[str, float], *, checks: bool, slack: float = SLACK) -> None:
        self._seconds, self._checks, self._slack = seconds, checks, slack
        self._taken: defaultdict[str, float] = defaultdict(float)
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._used = 0.0
        self._is_last = False

    def of(self, file: str) -> float:
        """The budget of a file: its own, or the default."""
        return self._seconds.get(file, self._seconds["default"])

    def over(self, factor: float = 1.0, slack: float = 0.0) -> dict[str, float]:
        """Seconds of each file that took more than `factor` times its budget and `slack` seconds, the worst first."""
        found = {file: taken for file, taken in self._taken.items() if taken > factor * self.of(file) + slack}
        return dict(sorted(found.items(), key=lambda item: item[1] / self.of(item[0]), reverse=True))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Largest budgets first; the tests of a file keep their order."""
        files = sorted(dict.fromkeys(_file(item.nodeid) for item in items), key=self.of, reverse=True)
        place = {file: number for number, file in enumerate(files)}
        items.sort(key=lambda item: place[_file(item.nodeid)])
        self._used = sum(os.times()[:4])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, nextitem: pytest.Item | None) -> None:
        """Note which test is the last of this process."""
        self._is_last = nextitem is None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the CPU seconds of this process, and of its children that have ended, since the report before."""
        report = yield
        used = sum(os.times()[:4])
        report.user_properties.append(
            (SHARED if self._is_last and report.when == "teardown" else CPU, used - self._used)
        )
        self._used = used
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the seconds, and those of CPU, of setup, call and teardown."""
        self._taken[_file(report.nodeid)] += report.duration
        # Properties of a test gather from its setup on.
        own = [(name, float(str(value))) for name, value in report.user_properties if name in {CPU, SHARED}]
        for name, seconds in own[-1:]:
            self._cpu[SHARED if name == SHARED else _file(report.nodeid)] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what took too long."""
        if not self._checks:
            return
        for file, taken in self.over().items():
            terminalreporter.write_line(f"over budget: {file}: {taken:.0f} s of {self.of(file):g} s ({FILE.name})")
        spent = sorted(self._cpu.items(), key=lambda each: -each[1])[:MOST_CPU]
        for file, seconds in spent:
            terminalreporter.write_line(f"CPU: {file}: {seconds:.0f} s of {sum(self._cpu.values()):.0f} s in all")
        for file in self._far_over():
            terminalreporter.write_line(f"FAILED {file}: far over its budget")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail where a file is far over its budget."""
        if self._checks and session.exitstatus == pytest.ExitCode.OK and self._far_over():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _far_over(self) -> list[str]:
        return [
            file
            for file in self.over(FACTOR, self._slack)
            if self._taken[file] > FACTOR * self._busy(file) * self.of(file) + self._slack
        ]

    def _busy(self, file: str) -> float:
        """How many times their budgets the other files take that have their own, in the median, 1 at least."""
        others = [name for name in self._taken if name in self._seconds and name != file]
        return max(1.0, statistics.median([self._taken[name] / self.of(name) for name in others] or [1.0]))


def is_long(file: Path) -> bool:
    """Whether a file, relative to the repository, has a budget above the default."""
    seconds = read()
    return seconds.get(file.as_posix(), 0.0) > seconds["default"]


@functools.cache
def read(file: Path = FILE) -> dict[str, float]:
    """The budgets of a file, in seconds.

    Raises:
        ValueError: one is no positive number, or `default` is missing.
    """
    table = tomllib.loads(file.read_text(encoding="utf-8"))["seconds"]
    wrong = [name for name, seconds in table.items() if not isinstance(seconds, int | float) or seconds <= 0]
    if wrong or "default" not in table:
        raise ValueError(f"{file}: wants positive seconds for {', '.join(wrong) or 'default'}")
    return {name: float(seconds) for name, seconds in table.items()}


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
