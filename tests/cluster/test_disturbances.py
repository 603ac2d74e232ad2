"""Faults of a real host that are constant, come and go, or stall it are named, and told apart."""

from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller
from tests.cluster.disturbances import DISTURBANCES, VICTIM, found

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_disturbed_host_is_named_with_the_kind_of_fault(tmp_path: Path, four_hosts: TestBed, name: str) -> None:
    named, sentences = found(Controller(tmp_path, four_hosts), four_hosts, name)
    kinds = DISTURBANCES[name].kinds
    if not kinds:
        assert named == [], sentences
        return
    ((part, hosts, kind),) = named
    assert (part, hosts) == ("host", (four_hosts.hosts[VICTIM].address,)), sentences
    assert kind in kinds, sentences
