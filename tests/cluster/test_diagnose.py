"""The ladder names the first rung that does not hold, and between which hosts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller, rank_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
PROCESS: dict[str, object] = {"RUNTIME": "process", "PYTHON": sys.executable, "BASE_IMAGE": None, "WHEELHOUSE": None}
CASE: dict[str, object] = {"nproc": 1, "overrides": {"sizes": "8..1M x8", "iterations": 5}}


@pytest.fixture
def controller(tmp_path: Path, testbed: TestBed) -> Controller:
    made = Controller(tmp_path, testbed)
    made.configure_test({"ALL_REDUCE": CASE}, **PROCESS)
    return made


def test_sound_hosts_hold_every_rung(controller: Controller, testbed: TestBed) -> None:
    answer = controller.call("diagnose")
    assert answer.exit_code == 0 and "FAILED" not in answer.output, answer.output
    rungs = [line.split(None, 1)[1] for line in answer.output.splitlines() if line.startswith("ok")]
    expected = ["ssh", "names", "interface", "port to the master", "gloo on two hosts", "gloo on all hosts, full size"]
    assert rungs == expected
    assert rank_process(0) is None
    for host in testbed.hosts:
        assert host.exec(["find", str(controller.logs), "-type", "f"]).stdout == ""


def test_hosts_that_do_not_reach_each_other(controller: Controller, testbed: TestBed) -> None:
    master, other = testbed.hosts
    other.exec(["ip", "route", "replace", "prohibit", f"{master.address}/32"])
    try:
        answer = controller.call("diagnose")
    finally:
        other.exec(["ip", "route", "delete", "prohibit", f"{master.address}/32"])
    assert answer.exit_code == 1, answer.output
    failed = answer.output.partition("FAILED")[2]
    assert failed.splitlines()[0].strip() == "port to the master", answer.output
    assert f"{other.address} does not reach the master {master.address}" in failed


def test_a_host_without_sshd(controller: Controller, testbed: TestBed) -> None:
    testbed.hosts[1].stop_sshd()
    try:
        answer = controller.call("diagnose")
    finally:
        testbed.hosts[1].start_sshd()
    assert answer.exit_code == 1 and "FAILED  ssh" in answer.output, answer.output
    assert testbed.hosts[1].address in answer.output and "gloo" not in answer.output


def test_it_says_what_it_needs(controller: Controller) -> None:
    controller.configure_test({"ONE": {**CASE, "nnodes": 1, "config": "config_CPUx1x2"}}, **PROCESS)
    answer = controller.call("diagnose")
    assert answer.exit_code == 2 and "nnodes of 2 or more" in answer.output, answer.output


def test_hosts_whose_ranks_do_not_reach_each_other(controller: Controller, testbed: TestBed) -> None:
    """A packet filter that lets torchrun's own port through and no other: the commonest reason of a hang."""
    master, other = testbed.hosts
    through = {master: ["--dport", "29500:29700"], other: ["--dport", "22"]}
    for host, peer in ((master, other), (other, master)):
        rule = ["-s", peer.address, "-p", "tcp", "--syn"]
        host.exec(["iptables", "-A", "INPUT", *rule, *through[host], "-j", "ACCEPT"])
        host.exec(["iptables", "-A", "INPUT", *rule, "-j", "REJECT"])
    controller.configure_test({"ALL_REDUCE": {**CASE, "overrides": {"sizes": "8", "timeout_s": 10}}}, **PROCESS)
    try:
        answer = controller.call("diagnose")
    finally:
        for host in testbed.hosts:
            host.exec(["iptables", "-F", "INPUT"])
    assert answer.exit_code == 1, answer.output
    failed = answer.output.partition("FAILED")[2]
    assert failed.splitlines()[0].strip() == "gloo on two hosts", answer.output
    assert f"{master.address} and {other.address}: " in failed, answer.output
