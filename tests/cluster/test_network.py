"""The slow host and the slow path, found by the pattern pairs on four real hosts whose wires are held to a speed.

All wires get a speed by tc, far below what CPU and bridge reach, so that other work on the machine hardly shows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.results.network import NetworkView, network_view
from run_benchmarks.results.records import CaseRecord, RoundRecord
from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller
from tests.cluster.host import Host
from training.benchmarks.network.analysis import analyse

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]
HEALTHY, SLOW = "400mbit", "100mbit"
SLOW_PERCENT = 15.0
CLEAN_RUNS, REPEATS = 20, 3


@pytest.fixture(scope="module")
def four_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBed]:
    with TestBed(4, tmp_path_factory.mktemp("network-bed"), engine=False) as bed:
        for host in bed.hosts:
            host.exec(["tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"])
            _class(host, "add", "1:1", HEALTHY)
            _class(host, "add", "1:2", SLOW)
        yield bed


@pytest.fixture
def controller(tmp_path: Path, four_hosts: TestBed) -> Controller:
    return Controller(tmp_path, four_hosts)


def _class(host: Host, action: str, number: str, rate: str) -> None:
    """What the class may send; the burst is small against a message, and the quantum one segment."""
    speed = ["htb", "rate", rate, "ceil", rate, "burst", "64k", "cburst", "64k", "quantum", "15000"]
    host.exec(["tc", "class", action, "dev", "eth0", "parent", "1:", "classid", number, *speed])


def _measure(controller: Controller, **overrides: object) -> tuple[CaseRecord, RoundRecord, NetworkView]:
    settings: dict[str, object] = {
        "pattern": "pairs",
        "repeats": REPEATS,
        "sizes": "1M",
        "iterations": 3,
        "warmup_iterations": 1,
    }
    case = {"nnodes": 4, "nproc": 1, "overrides": settings | overrides}
    controller.configure_test(
        {"PAIRS": case}, RUNTIME="process", PYTHON=sys.executable, BASE_IMAGE=None, WHEELHOUSE=None
    )
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    case_record = CaseRecord.model_validate(answer.run_record()["cases"][0])
    round_record = RoundRecord.model_validate(answer.round_record("PAIRS"))
    view = network_view(case_record, round_record)
    assert view is not None and view.analysis is not None
    assert answer.folder is not None
    report = (answer.folder / "report.html").read_text()
    assert all(sentence in report for sentence in view.sentences)
    return case_record, round_record, view


def _named(view: NetworkView) -> list[tuple[str, set[str]]]:
    assert view.analysis is not None
    return [(finding.kind, set(finding.hosts)) for finding in view.analysis.findings]


def test_a_healthy_cluster_raises_no_alarm_in_20_runs(controller: Controller, four_hosts: TestBed) -> None:
    """One start of the containers, 60 repeats: each three of them are judged by themselves, as a run would be."""
    _, record, view = _measure(controller, repeats=CLEAN_RUNS * REPEATS, sizes="512K")
    assert _named(view) == []
    assert view.hosts == tuple(host.address for host in four_hosts.hosts)
    alarms = []
    for begin in range(0, CLEAN_RUNS * REPEATS, REPEATS):
        own: list[dict[str, Any]] = [
            step | {"repeat": step["repeat"] - begin}
            for step in record.steps
            if begin < step["repeat"] <= begin + REPEATS
        ]
        assert len(own) == REPEATS * 3
        found = analyse(own, slow_percent=SLOW_PERCENT)
        assert found is not None
        alarms += [finding.sentence for finding in found.findings]
    assert alarms == []


def test_a_slow_host_is_named(controller: Controller, four_hosts: TestBed) -> None:
    victim = four_hosts.hosts[2]
    _class(victim, "change", "1:1", SLOW)
    try:
        _, record, view = _measure(controller, repeats=5)
    finally:
        _class(victim, "change", "1:1", HEALTHY)
    assert _named(view) == [("host", {victim.address})]
    assert view.sentences[0].startswith(f"host {victim.address}: all its pairs are ")
    assert "host node3: all its pairs are" in record.metrics["answer"], "the ranks say so, too, by the host's own name"
    slow = [cell for cell in view.matrix[2] if cell is not None]
    assert len(slow) == 3 and all(cell.named for cell in slow)


def test_a_slow_path_is_named_and_no_host(controller: Controller, four_hosts: TestBed) -> None:
    one, other = four_hosts.hosts[0], four_hosts.hosts[3]
    rule = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "dst", f"{other.address}/32", "flowid", "1:2"]
    one.exec(["tc", "filter", "add", "dev", "eth0", "parent", "1:", *rule])
    try:
        _, _, view = _measure(controller, repeats=5)
    finally:
        one.exec(["tc", "filter", "del", "dev", "eth0", "parent", "1:"])
    assert _named(view) == [("pair", {one.address, other.address})]
    assert f"pair {one.address}-{other.address} alone is" in view.sentences[0]
