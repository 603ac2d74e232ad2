"""Lets the tests that need hosts wait for what their hosts are made of, where scripts/check.sh makes it beside others.

A pytest plugin of tests/conftest.py. `--wait-for-images` names a folder: `pid` has the number of the process that makes
the images, `log` what it writes, and `code` its exit code once it has ended. Files without such tests run meanwhile
(tests/workers.py), and a test that waits all the same does so outside of its time limit and its budget.
"""

import contextlib
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

OPTION = "--wait-for-images"
PAUSE_S = 0.5


class Images:
    """What makes the images: the folder in which it says how far it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Hold a test of hosts back until the images are made, or will never be."""
        if needs_hosts(item):
            self.wait()
        return (yield)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test of hosts that have no images."""
        if needs_hosts(item) and self.wait() != 0:
            pytest.fail(f"the images of its hosts could not be made: {self.last_line()}", pytrace=False)

    def wait(self) -> int:
        """The exit code of what makes the images, once it has ended; -1 where it was killed."""
        while (code := self._code()) is None:
            if not self._lives():
                found = self._code()  # it may have ended after the first look
                return -1 if found is None else found
            time.sleep(PAUSE_S)
        return code

    def ended(self) -> bool:
        """Whether what makes the images has ended, well or not."""
        return self._code() is not None or not self._lives()

    def last_line(self) -> str:
        """The last line of its log."""
        lines = (self._folder / "log").read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it wrote nothing")

    def _code(self) -> int | None:
        try:
            return int((self._folder / "code").read_text())
        except FileNotFoundError:
            return None

    def _lives(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((self._folder / "pid").read_text()), 0)
            return True
        return False


def needs_hosts(item: pytest.Item) -> bool:
    """Whether a test is one of those that have hosts with Docker engines."""
    return item.get_closest_marker("cluster") is not None
