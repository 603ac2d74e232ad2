"""`run.py check` and `trust` on real hosts: each thing that is wrong is named with its host and what to do."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Controller
from tests.cluster.faulty_project import LIGHT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def controller(controller: Controller) -> Controller:
    controller.configure_test({"ALL_REDUCE": {}})
    return controller


def _dead_address(testbed: TestBed) -> str:
    return testbed.hosts[0].address.rsplit(".", 1)[0] + ".250"


def test_sound_hosts_pass(controller: Controller, testbed: TestBed) -> None:
    answer = controller.call("check")
    assert answer.exit_code == 0, answer.output
    assert all(host.address in answer.output for host in testbed.hosts) and "failed" not in answer.output


@pytest.mark.nightly
def test_a_cable_that_loses_large_frames_is_named_with_the_largest_that_passes(
    controller: Controller, testbed: TestBed
) -> None:
    """Larger frames are dropped without a word, as by a switch whose port has another MTU."""
    narrow = testbed.hosts[1]
    port = narrow._network.veth(2)
    netns = narrow._network.netns(2)
    subprocess.run(
        ["ip", "-netns", netns, "route", "add", narrow.head_address, "dev", "eth0", "mtu", "1280"], check=True
    )
    subprocess.run(["ip", "link", "set", port, "mtu", "1400"], check=True)
    try:
        answer = controller.call("check")
    finally:
        subprocess.run(["ip", "link", "set", port, "mtu", "1500"], check=True)
        subprocess.run(["ip", "-netns", netns, "route", "del", narrow.head_address], check=True)
    assert answer.exit_code == 3, answer.output
    lines = [line for line in answer.output.splitlines() if "│ MTU " in line]
    assert {line.split()[0] for line in lines} == {host.address for host in testbed.hosts}, answer.output
    found = " ".join(
        row[3].strip() for row in (line.split("│") for line in answer.output.splitlines()) if len(row) == 6
    )
    assert f"reach {narrow.address}; those of 1400 do" in found, answer.output
    assert "MTU" not in controller.call("check").output


def test_a_dead_host_is_named_and_nothing_starts(controller: Controller, testbed: TestBed) -> None:
    dead = _dead_address(testbed)
    controller.configure_cluster(HOSTS=[testbed.hosts[0].address, dead])
    answer = controller.call()
    assert answer.exit_code == 3, answer.output
    assert f"{dead}: ssh: found port 22 cannot be reached" in answer.output
    assert f"1 of 2 hosts failed the check: {dead}" in answer.output
    assert controller.containers() == []
    record = answer.run_record()
    assert (
        record["exit_code"] == 3 and record["cases"][0]["verdict"] == "skipped" and dead in record["cases"][0]["reason"]
    )


def test_a_wrong_key_is_named(controller: Controller, testbed: TestBed, tmp_path: Path) -> None:
    key = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    controller.configure_cluster(SSH_KEY=str(key))
    answer = controller.call()
    assert answer.exit_code == 3, answer.output
    for host in testbed.hosts:
        assert f"{host.address}: ssh: found login as root on port 22 with key {key} was refused" in answer.output


def test_an_unknown_host_key_is_refused_until_it_is_trusted(
    controller: Controller, testbed: TestBed, tmp_path: Path
) -> None:
    known_hosts = tmp_path / "known_hosts"
    controller.configure_cluster(KNOWN_HOSTS=str(known_hosts))
    answer = controller.call("check")
    assert answer.exit_code == 3 and "unknown host key" in " ".join(answer.output.split()), answer.output
    assert not known_hosts.exists()
    answer = controller.call("trust", "--yes")
    assert answer.exit_code == 0, answer.output
    assert {line.split()[0] for line in known_hosts.read_text().splitlines()} == {h.address for h in testbed.hosts}
    assert controller.call("check").exit_code == 0


def test_a_host_without_docker_is_named(controller: Controller, tmp_path: Path) -> None:
    with TestBed(1, tmp_path / "bare", engine=False) as bare:
        bare_controller = Controller(tmp_path, bare)
        bare_controller.configure_test({"ALL_REDUCE": {"nnodes": 1, "config": "config_CPUx1x2"}})
        answer = bare_controller.call()
        assert answer.exit_code == 3, answer.output
        assert f"{bare.hosts[0].address}: docker: found no docker command" in answer.output


@pytest.mark.nightly
def test_a_stopped_engine_is_named(controller: Controller, testbed: TestBed) -> None:
    testbed.hosts[1].stop_engine()
    try:
        answer = controller.call()
    finally:
        testbed.hosts[1].start_engine()
    assert answer.exit_code == 3, answer.output
    assert f"{testbed.hosts[1].address}: docker: found no answer from the engine" in answer.output
    assert f"1 of 2 hosts failed the check: {testbed.hosts[1].address}" in answer.output


def test_missing_devices_and_data_are_named(controller: Controller, testbed: TestBed) -> None:
    data = {"data_dir_host": "/data/not/there", "data_dir_container": "/mnt/data"}
    controller.configure_test({"GPU": {"config": "config_H100x2x8", "nproc": 8, **data}}, VENDOR="nvidia")
    answer = controller.call("check")
    text = " ".join(answer.output.split())
    assert answer.exit_code == 3, answer.output
    assert "device files" in text and "/data/not/there" in text


def test_two_names_of_one_host_are_refused_with_both_names(controller: Controller, testbed: TestBed) -> None:
    """An address and a second one of the same interface, as a machine with two networks has."""
    host = testbed.hosts[0]
    second = host.address.rsplit(".", 1)[0] + ".240"
    host.exec(["ip", "address", "add", f"{second}/24", "dev", "eth0"])
    host.exec(["sh", "-c", f"sed 's/^ListenAddress .*/ListenAddress {second}/' /etc/ssh/sshd_config > /tmp/second"])
    host.exec(["/usr/sbin/sshd", "-o", "PidFile=/run/second.pid", "-f", "/tmp/second"])
    key = next(line for line in testbed.known_hosts.read_text().splitlines() if host.address in line)
    known_hosts = controller.cluster_conf.with_name("known_hosts")
    known_hosts.write_text(testbed.known_hosts.read_text() + f"{second} {key.split(maxsplit=1)[1]}\n")
    controller.configure_cluster(HOSTS=[host.address, second], KNOWN_HOSTS=str(known_hosts))
    try:
        answer = controller.call()
    finally:
        host.exec(["sh", "-c", f"kill $(cat /run/second.pid); ip address delete {second}/24 dev eth0"])
    assert answer.exit_code == 3, answer.output
    text = " ".join(answer.output.split())
    assert f"{second}: machine: found the same machine as {host.address} (boot-id" in text
    assert f"write one of the two names, {host.address} or {second}, in HOSTS" in text
    assert controller.containers() == []


def test_a_run_goes_on_without_a_dead_host_where_min_hosts_are_left(controller: Controller, testbed: TestBed) -> None:
    dead, alive = _dead_address(testbed), testbed.hosts[1].address
    controller.configure_cluster(HOSTS=[dead, alive], MIN_HOSTS=1)
    controller.configure_test({"ONE": {**LIGHT, "nnodes": 1}, "BOTH": LIGHT}, **PROCESS)
    answer = controller.call()
    assert answer.exit_code == 1, answer.output
    record = answer.run_record()
    assert [case["verdict"] for case in record["cases"]] == ["pass", "skipped"], answer.output
    assert answer.round_record("ONE")["nodes"][0]["host"] == alive
    assert "cannot be reached" in record["left_out"][dead] and "cannot be reached" in record["cases"][1]["reason"]
    assert f"Left out of this run: {dead}: ssh: port 22 cannot be reached" in answer.output


@pytest.mark.nightly
def test_few_sessions_and_a_start_file_that_prints_are_said_and_a_round_runs(
    controller: Controller, testbed: TestBed
) -> None:
    """A finished round failed at its collection where sshd grants one session a connection."""
    few, noisy = testbed.hosts[:2]
    config = few.path("/etc/ssh/sshd_config")
    before = config.read_text()
    start = noisy.path("/root/.bashrc")
    config.write_text(f"MaxSessions 1\n{before}")
    start.write_text("echo Welcome to the cluster\n")
    few.stop_sshd()
    few.start_sshd()
    controller.configure_test({"LIGHT": LIGHT})
    try:
        answer = controller.call("check")
        assert answer.exit_code == 0, answer.output
        said = " ".join(answer.output.split())
        assert "ssh sessions" in said and "login shell" in said
        answer = controller.call()
        assert answer.exit_code == 0, answer.output
        assert "1 at once on a connection (MaxSessions" in answer.output
        assert "Welcome to the cluster" in answer.output and "start files" in answer.output
        assert answer.run_record()["cases"][0]["verdict"] == "pass"
        start.write_text("exit 3\n")
        answer = controller.call()
        assert answer.exit_code == 3, answer.output
        assert f"{noisy.address}: login shell: found the login shell ended with exit code 3" in answer.output
    finally:
        config.write_text(before)
        start.unlink()
        few.stop_sshd()
        few.start_sshd()
