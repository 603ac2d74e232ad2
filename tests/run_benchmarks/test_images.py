"""How the way of an image is told."""

from __future__ import annotations

import logging

import pytest

from run_benchmarks.console import LOG
from run_benchmarks.images import Sayer
from run_benchmarks.interruption import Interruption


def test_the_log_has_each_line_of_a_build_and_a_transfer_s_line_once(caplog: pytest.LogCaptureFixture) -> None:
    say = Sayer("node1", Interruption("clean"))
    with caplog.at_level(logging.DEBUG, logger=LOG.name):
        say("Step 1/2", None)
        say("Step 2/2", None)
        for chunk in range(1000):
            say("saving", chunk / 1000)
    assert [record.getMessage() for record in caplog.records] == [
        "node1: Step 1/2",
        "node1: Step 2/2",
        "node1: saving",
    ]
