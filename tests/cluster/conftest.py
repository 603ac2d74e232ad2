"""run.py against the session's hosts, and the hosts as they were afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller
from tests.cluster.pairs import four_healthy_hosts


@pytest.fixture(scope="session")
def four_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBed]:
    """Four hosts whose wires are held to one speed; a test that makes one worse mends it."""
    with four_healthy_hosts(tmp_path_factory.mktemp("four-hosts")) as bed:
        yield bed


@pytest.fixture
def controller(tmp_path: Path, testbed: TestBed, root: Path) -> Iterator[Controller]:
    """run.py with its files in the test's folder. What the test did to a host is mended, what a run left is removed."""
    made = Controller(tmp_path, testbed, root)
    yield made
    for host in testbed.hosts:
        if host.pid is None:
            testbed.boot(host)
        host.link_up()
        if not host.sshd_answers():
            host.start_sshd()
    made.end()
