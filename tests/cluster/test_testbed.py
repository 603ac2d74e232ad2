"""The test bed itself: hosts are apart as real ones are, faults do what they say, and nothing stays behind."""

import ipaddress
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import images, network
from tests.cluster.bed import BedIsUpError, TestBed, take_down
from tests.cluster.engine import Engine, answers, bed_id, start_engine
from tests.cluster.host import ClusterHost
from tests.cluster.lock import FolderLock
from tests.cluster.system import TestBedError, run, wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBed]:
    """Two hosts without Docker."""
    with TestBed(2, tmp_path_factory.mktemp("plain"), engine=False) as bed:
        yield bed


def ssh(bed: TestBed, host: ClusterHost, *command: str) -> subprocess.CompletedProcess[str]:
    return run(bed.ssh_argv(host, *command), check=False, timeout=20)


def reaches(host: ClusterHost, name: str) -> bool:
    """Whether a TCP connection from the host to another's sshd, by name, comes about within 2 s."""
    code = f"import socket; socket.create_connection(({name!r}, 22), timeout=2)"
    return host.exec([sys.executable, "-c", code], check=False).returncode == 0


def control_groups(bed: str) -> list[str]:
    """Those of a bed; os.walk goes on where another test's group goes while it looks, Path.glob of 3.11 fails."""
    return [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.endswith(f"/clusterdyno/{bed}")]


def left_behind(bed: TestBed) -> list[str]:
    """What of a bed is still on the machine: namespaces, links, processes, mounts, control groups, filter rules."""
    found = network.namespaces(bed.bed)
    found += [line for line in run(["ip", "-oneline", "link"]).stdout.splitlines() if bed.bed in line]
    found += [line for line in run(["ps", "-eo", "pid,args"]).stdout.splitlines() if f"{bed.folder}/" in line]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(bed.folder) in line]
    found += control_groups(bed.bed)
    rules = run(["iptables", "-S"], check=False).stdout.splitlines()
    return found + [line for line in rules if bed.bed in line]


def test_hosts_are_apart(testbed: TestBed) -> None:
    first, second = testbed.hosts
    for host in testbed.hosts:
        assert ssh(testbed, host, "hostname").stdout == f"{host.name}\n"
        assert ssh(testbed, host, "docker info --format '{{.Name}}'").stdout == f"{host.name}\n"
        assert ssh(testbed, host, "ls /sys/class/net").stdout.split() == ["eth0", "lo"]
    for folder in ("/root", "/tmp", "/var/tmp", "/opt", "/dev/shm"):
        first.exec(["touch", f"{folder}/mark"])
        assert second.exec(["test", "-e", f"{folder}/mark"], check=False).returncode == 1
        assert not Path(folder, "mark").exists()
    assert first.pids("dockerd") and first.pids("dockerd") != second.pids("dockerd")


def test_hosts_reach_each_other_by_name(testbed: TestBed) -> None:
    first, second = testbed.hosts
    assert reaches(first, "node2") and reaches(second, "node1")
    assert not reaches(first, "node3")


def test_ssh_accepts_only_the_written_key_and_shows_the_written_host_key(plain: TestBed, tmp_path: Path) -> None:
    host = plain.hosts[0]
    assert ssh(plain, host, "true").returncode == 0
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")])
    words = [str(tmp_path / "other") if word == str(plain.key_file) else word for word in plain.ssh_argv(host, "true")]
    assert "Permission denied" in run(words, check=False).stderr
    swapped = plain.known_hosts.read_text().replace(plain.hosts[1].address, "192.0.2.1")
    lines = swapped.replace(host.address, plain.hosts[1].address)
    (tmp_path / "known_hosts").write_text(lines)
    words = [word.replace(str(plain.known_hosts), str(tmp_path / "known_hosts")) for word in plain.ssh_argv(host)]
    assert "Host key verification failed" in run([*words, "true"], check=False).stderr


def test_containers_of_two_hosts_meet_over_the_host_network(testbed: TestBed) -> None:
    first, second = testbed.hosts
    listen = "import socket; s = socket.create_server(('', 29999)); print(s.accept()[0].recv(5).decode(), flush=True)"
    send = "import socket; socket.create_connection(('node2', 29999), timeout=5).sendall(b'hello')"
    with_network = ["docker", "run", "--network=host", "--name=meeting"]
    try:
        second.exec([*with_network, "--detach", images.BASE_IMAGE, "python3", "-c", listen])
        bound = ["sh", "-c", "grep -q ':752F ' /proc/net/tcp"]
        wait_until(lambda: second.exec(bound, check=False).returncode == 0, timeout=10, what="a listener")
        first.exec([*with_network, "--rm", images.BASE_IMAGE, "python3", "-c", send])
        assert second.exec(["docker", "wait", "meeting"]).stdout == "0\n"
        assert second.exec(["docker", "logs", "meeting"]).stdout == "hello\n"
        assert first.exec(["docker", "ps", "--all", "--quiet"]).stdout == ""
    finally:
        second.exec(["docker", "rm", "--force", "meeting"])


def test_a_host_without_docker_has_not_even_its_program(plain: TestBed) -> None:
    assert ssh(plain, plain.hosts[0], "docker version").returncode == 127
    with pytest.raises(TestBedError, match="node1: is a host without Docker"):
        plain.hosts[0].start_engine()


def test_a_command_that_hangs_is_ended_inside(plain: TestBed) -> None:
    host = plain.hosts[0]
    with pytest.raises(TestBedError, match=r"no end within 0\.5 s"):
        host.exec(["sh", "-c", "sleep 987 | cat"], timeout=0.5, check=False)
    assert "sleep 987" not in host.exec(["ps", "-eo", "args"]).stdout


def test_the_checkout_is_read_only_on_a_host(plain: TestBed) -> None:
    done = plain.hosts[0].exec(["touch", str(images.REPOSITORY / "README.md")], check=False)
    assert "Read-only file system" in done.stderr


def test_faults_of_the_network_and_sshd(plain: TestBed) -> None:
    first, second = plain.hosts
    first.link_down()
    assert not first.sshd_answers() and not reaches(second, "node1")
    first.link_up()
    wait_until(first.sshd_answers, timeout=10, what="sshd after link_up()")
    first.drop_head()
    assert not first.sshd_answers() and reaches(second, "node1")
    first.rejoin_head()
    wait_until(first.sshd_answers, timeout=10, what="sshd after rejoin_head()")
    first.stop_sshd()
    assert not first.sshd_answers() and not first.pids("sshd")
    first.start_sshd()
    assert ssh(plain, first, "hostname").stdout == "node1\n"


def test_stopping_sshd_ends_its_sessions_or_leaves_them(plain: TestBed) -> None:
    host = plain.hosts[0]
    session = subprocess.Popen(plain.ssh_argv(host, "echo up; sleep 60"), stdout=subprocess.PIPE, text=True)
    try:
        assert session.stdout is not None and session.stdout.readline() == "up\n"
        host.stop_sshd(sessions=False)
        assert not host.sshd_answers() and host.pids("sshd") and session.poll() is None
        host.stop_sshd()
        assert session.wait(timeout=10) == 255
    finally:
        session.kill()
        session.communicate()
        host.start_sshd()


def test_a_killed_host_answers_nothing_and_boots_afresh(plain: TestBed) -> None:
    host = plain.hosts[1]
    fresh = ssh(plain, host, "ls /root").stdout  # nothing, or the folder of a checkout that lies in /root
    host.exec(["touch", "/root/mark"])
    host.kill()
    assert host.pid is None and not host.sshd_answers()
    with pytest.raises(TestBedError, match="is down"):
        host.exec(["true"])
    plain.boot(host)
    assert ssh(plain, host, "ls /root").stdout == fresh


@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_an_engine_stops_and_starts(testbed: TestBed, kill: bool) -> None:
    host = testbed.hosts[0]
    try:
        host.stop_engine(kill=kill)
        assert not answers(host.docker_socket)
        assert "Cannot connect" in ssh(testbed, host, "docker ps").stderr
    finally:
        host.start_engine()
    assert ssh(testbed, host, "docker images --quiet").stdout


def test_no_trace_is_left(tmp_path: Path) -> None:
    with TestBed(2, tmp_path / "bed", images=True) as bed:
        container = ["docker", "run", "--detach", "--init", images.BASE_IMAGE, "sleep", "600"]
        bed.hosts[0].exec(container)
        assert len(left_behind(bed)) > 4
    assert left_behind(bed) == []
    assert not (bed.folder / "id_ed25519").exists()
    assert any((bed.folder / "hosts/node1/docker").iterdir()), "images are kept for the next time"
    assert take_down(bed.folder, purge=True)
    assert not (bed.folder / "hosts").exists()
    assert not take_down(bed.folder)


@pytest.mark.nightly
def test_what_a_killed_bed_left_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from tests.cluster.bed import TestBed\n"
        "TestBed(1, sys.argv[1]).up(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=images.REPOSITORY, timeout=200)
    assert done.returncode == -signal.SIGKILL
    assert network.namespaces(bed_id(tmp_path))
    with TestBed(2, tmp_path, engine=False) as bed:
        assert [host.exec(["hostname"]).stdout for host in bed.hosts] == ["node1\n", "node2\n"]
    assert left_behind(bed) == []


def test_a_failure_on_the_way_up_takes_everything_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cluster.host.SSHD_CONFIG", "NoSuchOption yes\n")
    bed = TestBed(2, tmp_path, engine=False)
    with pytest.raises(TestBedError, match="NoSuchOption"):
        bed.up()
    assert left_behind(bed) == []


@pytest.mark.nightly
def test_the_command_leaves_a_bed_up_until_down(tmp_path: Path) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tests.cluster", *words, "--dir", str(tmp_path)]
        return subprocess.run(argv, cwd=images.REPOSITORY, capture_output=True, text=True, timeout=200)

    try:
        done = command("up", "2", "--no-engine")
        assert done.returncode == 0, done.stderr
        assert "root@" in done.stdout and str(tmp_path / "cluster_conf.py") in done.stdout
        assert "node2" in command("status").stdout
        with pytest.raises(BedIsUpError, match="its bed is up"):
            TestBed(1, tmp_path).up()
        names: dict[str, object] = {}
        exec((tmp_path / "cluster_conf.py").read_text(), names)
        loaded = TestBed.load(tmp_path)
        assert loaded is not None and names["HOSTS"] == [host.address for host in loaded.hosts]
        assert ssh(loaded, loaded.hosts[1], "hostname").stdout == "node2\n"
        os.kill(loaded.hosts[1].pid or 0, signal.SIGKILL)
        assert "node2" in command("status").stdout and "off" in command("status").stdout
    finally:
        done = command("down")
    assert done.returncode == 0 and left_behind(loaded) == []
    assert command("status").returncode == 1


def test_an_engine_without_hosts_sees_the_machines_files(docker_engine: Engine, tmp_path: Path) -> None:
    client = docker_engine.connect()
    try:
        mounts = {str(tmp_path): {"bind": "/shared", "mode": "rw"}}
        client.containers.run(images.BASE_IMAGE, ["touch", "/shared/mark"], volumes=mounts, remove=True)
    finally:
        client.close()
    assert (tmp_path / "mark").exists()


@pytest.mark.nightly
def test_an_engine_leaves_no_trace(tmp_path: Path) -> None:
    engine = start_engine(tmp_path)
    try:
        assert answers(engine.socket)
    finally:
        engine.stop(purge=True)
    assert str(tmp_path) not in run(["ps", "-eo", "args"]).stdout
    assert not (tmp_path / "docker").exists()
    assert control_groups(bed_id(tmp_path)) == []


def test_another_process_waits_for_the_folder(plain: TestBed) -> None:
    with pytest.raises(TestBedError, match=r"another process has used what is in it for 0\.3 s"):
        FolderLock(plain.folder).acquire(timeout=0.3)


def test_a_subnet_that_is_in_use_is_not_chosen(plain: TestBed) -> None:
    assert network.choose_subnet(plain.bed).network_address not in {
        ipaddress.IPv4Network(f"{host.address}/24", strict=False).network_address for host in plain.hosts
    }


def test_a_base_image_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBIAN_MIRROR", f"file://{tmp_path}/no-mirror")
    with pytest.raises(TestBedError, match="debootstrap"):
        images.base_image_tar(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
