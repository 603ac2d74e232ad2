"""The ladder names the first rung that does not hold, and between which hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.access import etc_hosts
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, rank_process
from tests.cluster.host import ClusterHost

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
CASE: dict[str, object] = {"nproc": 1, "overrides": {"sizes": "8..1M x8", "iterations": 5}}


@pytest.fixture
def controller(controller: Controller) -> Controller:
    controller.configure_test({"ALL_REDUCE": CASE}, **PROCESS)
    return controller


class HeadNode(Controller):
    """run.py with an /etc/hosts of its own, in which the hosts of the bed have their names."""

    def __init__(self, folder: Path, bed: TestBed) -> None:
        super().__init__(folder, bed)
        self.configure_cluster(HOSTS=[host.name for host in bed.hosts])
        self._etc_hosts = folder / "hosts"
        self._etc_hosts.write_text(etc_hosts(bed.hosts))

    def argv(self, *words: str) -> list[str]:
        mounted = ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(self._etc_hosts)]
        return ["unshare", "--mount", *mounted, *super().argv(*words)]


@contextmanager
def etc_hosts_of(host: ClusterHost, text: str) -> Iterator[None]:
    """Another /etc/hosts on a host."""
    file = host.path("/etc/hosts")
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


def failed_rung(answer: Answer) -> tuple[str, str]:
    """The rung that does not hold, and what is said of it."""
    assert answer.exit_code == 1, answer.output
    name, _, problems = answer.output.partition("FAILED")[2].partition("\n")
    return name.strip(), problems


@pytest.mark.nightly
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
    rung, problems = failed_rung(answer)
    assert rung == "port to the master", answer.output
    assert f"{other.address} does not reach the master {master.address}: " in problems


@pytest.mark.parametrize(
    ("entry", "rung", "said"),
    [
        ("", "names", "node2: names: found node1 do not resolve"),
        pytest.param(
            "127.0.1.1",
            "interface",
            "node2: interface: found the master resolves to a loopback address",
            marks=pytest.mark.nightly,
        ),
        ("{other}", "port to the master", "does not reach the master node1 (which the head node reaches at {master})"),
    ],
    ids=["none", "loopback", "another host's"],
)
def test_a_host_that_knows_a_wrong_address_of_the_master(
    tmp_path: Path, testbed: TestBed, entry: str, rung: str, said: str
) -> None:
    master, other = testbed.hosts
    controller = HeadNode(tmp_path, testbed)
    controller.configure_test({"ALL_REDUCE": CASE}, **PROCESS)
    addresses = {"master": master.address, "other": other.address}
    text = etc_hosts([other]) + (f"{entry.format(**addresses)} {master.name}\n" if entry else "")
    with etc_hosts_of(other, text):
        answer = controller.call("diagnose")
    found, problems = failed_rung(answer)
    assert found == rung and said.format(**addresses) in problems and "node1: " not in problems, answer.output


def test_an_interface_that_a_host_does_not_have(controller: Controller, testbed: TestBed) -> None:
    controller.configure_cluster(NETWORK_INTERFACE="ib7")
    rung, problems = failed_rung(controller.call("diagnose"))
    assert rung == "interface"
    for host in testbed.hosts:
        assert f"{host.address}: interface: found only " in problems and "NETWORK_INTERFACE, ib7" in problems


def test_a_host_without_sshd(controller: Controller, testbed: TestBed) -> None:
    testbed.hosts[1].stop_sshd()
    try:
        answer = controller.call("diagnose")
    finally:
        testbed.hosts[1].start_sshd()
    rung, problems = failed_rung(answer)
    assert rung == "ssh" and testbed.hosts[1].address in problems and "gloo" not in answer.output, answer.output


def test_it_says_what_it_needs(controller: Controller) -> None:
    controller.configure_test({"ONE": {**CASE, "nnodes": 1, "config": "config_CPUx1x2"}}, **PROCESS)
    answer = controller.call("diagnose")
    assert answer.exit_code == 2 and "nnodes of 2 or more" in answer.output, answer.output


@pytest.mark.nightly
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
    rung, problems = failed_rung(answer)
    assert rung == "gloo on two hosts" and f"{master.address} and {other.address}: " in problems, answer.output
