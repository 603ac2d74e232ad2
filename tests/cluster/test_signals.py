"""SIGINT, SIGTERM and SIGHUP at each stage of a run: nothing of it is left on any host, what there is is kept."""

import contextlib
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, in_training, rank_process, wait_until
from tests.cluster.faulty_project import LIGHT, LONG, WAITS
from tests.cluster.host import SSHD, ClusterHost
from tests.cluster.system import frozen

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
STAGE_SECONDS = 60.0
END_SECONDS = 40.0
OTHER_IMAGE = "clusterdyno-test/on-one-host:1"
LARGE_MB = 500  # takes seconds to collect


@pytest.fixture
def controller(tmp_path: Path, testbed: TestBed, root: Path) -> Iterator[Controller]:
    """With what runs on the hosts before and after being the same, containers and processes alike."""
    made = Controller(tmp_path, testbed, root)
    before = {host.name: processes(host) for host in testbed.hosts}
    yield made
    try:
        assert made.containers() == []
        for host in testbed.hosts:
            _assert_nothing_left(host, before[host.name])
    finally:
        made.end()


def processes(host: ClusterHost) -> Counter[str]:
    """The commands that run on a host, those of its containers among them, without what the look itself starts."""
    lines = host.exec(["ps", "-eo", "args", "--no-headers"]).stdout.splitlines()
    return Counter(line for line in lines if not line.startswith(("ps -eo", "timeout --signal", "sleep 86400")))


def _assert_nothing_left(host: ClusterHost, before: Counter[str]) -> None:
    def none_left() -> bool:
        return not processes(host) - before

    with contextlib.suppress(AssertionError):
        wait_until("the end of all of it", none_left, 10.0)
    assert processes(host) - before == Counter(), host.name
    client = host.connect_docker()
    try:
        # A build's own containers have no label.
        assert client.containers.list(all=True, ignore_removed=True) == [], host.name
    finally:
        client.close()


def says(controller: Controller, text: str) -> Callable[[], bool]:
    """Whether the run's log has a line with this text."""

    def condition() -> bool:
        run = controller.newest_run()
        return run is not None and (run / "run.log").is_file() and text in (run / "run.log").read_text()

    return condition


def interrupt(controller: Controller, process: subprocess.Popen[str], number: signal.Signals) -> Answer:
    """Send the signal and see the run end as it must: in time, with 130, and aborted in its record."""
    process.send_signal(number)
    began = time.monotonic()
    answer = controller.finish(process)
    print(f"{number.name}: the end {time.monotonic() - began:.1f} s after it")
    assert time.monotonic() - began < END_SECONDS, answer.output
    assert answer.exit_code == 130, answer.output
    record = answer.run_record()
    assert (record["verdict"], record["exit_code"]) == ("aborted", 130)
    assert record["cases"][-1]["verdict"] == "aborted" and number.name in record["cases"][-1]["reason"]
    return answer


@pytest.mark.nightly
def test_in_the_check(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"LONG": LONG})
    with frozen(testbed.hosts[1].pids(*SSHD)):
        process = controller.start()
        wait_until("the check", says(controller, "Step 1: Check"), STAGE_SECONDS)
        answer = interrupt(controller, process, signal.SIGHUP)
    assert "Step 2" not in answer.output


@contextlib.contextmanager
def slow_to_hosts(testbed: TestBed, rate: str) -> Iterator[None]:
    """What the head node sends to the hosts goes at this rate, in tc's units."""
    words = subprocess.run(
        ["ip", "-o", "route", "get", testbed.hosts[0].address], capture_output=True, text=True, check=True
    ).stdout.split()
    qdisc = ["tc", "qdisc", "add", "dev", words[words.index("dev") + 1], "root"]
    subprocess.run([*qdisc, "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"], check=True)
    try:
        yield
    finally:
        subprocess.run([*qdisc[:2], "del", *qdisc[3:]], check=True)


@pytest.mark.nightly
def test_while_the_code_is_pushed(controller: Controller, testbed: TestBed) -> None:
    """Over a link on which that takes longer than END_SECONDS."""
    deploy = f"{controller.logs}-deploy"
    controller.configure_test({"LONG": LONG}, FLAGPERF_PATH_HOST=deploy, **PROCESS)
    with slow_to_hosts(testbed, "400kbit"):
        process = controller.start()
        node = testbed.hosts[0]
        wait_until("the push", lambda: any("tar -xf -" in line for line in processes(node)), STAGE_SECONDS)
        answer = interrupt(controller, process, signal.SIGINT)
    assert "Prepare code and images......[SUCCESS]" not in answer.output
    files = ["find", deploy, "-type", "f"]
    # What was on its way when the controller ended arrives first.
    wait_until(
        f"hosts without files in {deploy}",
        lambda: not any(host.exec(files, check=False).stdout for host in testbed.hosts),
        STAGE_SECONDS,
    )


@pytest.mark.nightly
def test_while_an_image_is_built(controller: Controller, testbed: TestBed) -> None:
    client = testbed.hosts[0].connect_docker()
    # Another base than any before, or the engine would have the image, or all of its build in a cache.
    repository, made = "clusterdyno-test/other-base", str(time.time_ns())
    try:
        blank = client.containers.create(images.BASE_IMAGE)
        blank.commit(repository, made, changes=f"LABEL made={made}")
        blank.remove()
        controller.configure_test({"LONG": LONG}, BASE_IMAGE=f"{repository}:{made}")
        before = {tag for image in client.images.list() for tag in image.tags}
        process = controller.start()
        wait_until("the build", says(controller, "building it"), STAGE_SECONDS)
        # Where the packages are installed, the builder says nothing for a while.
        installing = "pip install"
        node = testbed.hosts[0]
        wait_until("pip", lambda: any(installing in line for line in processes(node)), STAGE_SECONDS)
        answer = interrupt(controller, process, signal.SIGTERM)
        assert "Prepare code and images......[SUCCESS]" not in answer.output
        assert {tag for image in client.images.list() for tag in image.tags} == before
    finally:
        client.images.remove(f"{repository}:{made}")
        client.close()


@pytest.mark.nightly
def test_while_an_image_is_brought(controller: Controller, testbed: TestBed) -> None:
    clients = [host.connect_docker() for host in testbed.hosts]
    try:
        clients[0].images.get(images.BASE_IMAGE).tag(*OTHER_IMAGE.split(":"))
        controller.configure_test({"LONG": LONG}, IMAGE=OTHER_IMAGE, BASE_IMAGE=None, WHEELHOUSE=None)
        process = controller.start()
        wait_until("the transfer", says(controller, f"Bringing image {OTHER_IMAGE}"), STAGE_SECONDS)
        answer = interrupt(controller, process, signal.SIGINT)
        assert "Prepare code and images......[SUCCESS]" not in answer.output
        assert not any(OTHER_IMAGE in image.tags for image in clients[1].images.list())
    finally:
        clients[0].images.remove(OTHER_IMAGE)
        for client in clients:
            client.close()


@pytest.mark.nightly
def test_while_the_tasks_are_started(controller: Controller) -> None:
    controller.configure_test({"LONG": LONG})
    process = controller.start()
    wait_until("a first container", controller.containers)
    answer = interrupt(controller, process, signal.SIGHUP)
    record = answer.round_record("LONG")
    assert record["verdict"] == "aborted" and record["first_failure"] is None


def _assert_least_privilege(host: ClusterHost) -> None:
    """What docs/explanation/security.md says of a container, of those that run."""
    client = host.connect_docker()
    try:
        running = client.containers.list(ignore_removed=True)
        assert len(running) == 2
        for container in running:
            allowed = container.attrs["HostConfig"]
            assert allowed["CapDrop"] == ["ALL"] and not allowed["CapAdd"] and not allowed["Privileged"]
            assert allowed["SecurityOpt"] == ["no-new-privileges"] and not allowed["Devices"]
            assert container.attrs["Config"]["User"] == "0:0"  # that of the login, whoever the image names
            writable = [mount["Destination"] for mount in container.attrs["Mounts"] if mount["RW"]]
            assert writable == ["/workspace/result"]
            status = container.exec_run(["cat", "/proc/1/status"]).output
            assert isinstance(status, bytes)
            assert b"CapEff:\t0000000000000000" in status and b"NoNewPrivs:\t1" in status and b"Seccomp:\t2" in status
    finally:
        client.close()


def test_in_a_round(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"LONG": LONG, "NEVER": LIGHT})
    process = controller.start()
    wait_until("work of all ranks", lambda: all(map(in_training, range(4))))
    _assert_least_privilege(testbed.hosts[0])
    answer = interrupt(controller, process, signal.SIGINT)
    record = answer.round_record("LONG")
    assert record["verdict"] == "aborted" and "SIGINT" in record["reason"] and record["first_failure"] is None
    assert [node["missing"] for node in record["nodes"]] == [[], []]
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["aborted", "aborted"]


def has_begun_to_collect(controller: Controller) -> bool:
    run = controller.newest_run()
    return run is not None and '"round_collecting"' in (run / "journal.jsonl").read_text()


@pytest.mark.nightly
def test_while_the_files_are_collected(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"SHORT": WAITS, "NEVER": LIGHT})
    process = controller.start()
    wait_until("rank 3", lambda: rank_process(3) is not None)
    assert process.poll() is None
    large = f"cd {controller.logs}/.hosts/*/SHORT/round1/*_noderank1 && head -c {LARGE_MB}M /dev/zero >large"
    testbed.hosts[1].exec(["sh", "-c", large])
    controller.let_go("SHORT")
    wait_until("the collection", lambda: has_begun_to_collect(controller), STAGE_SECONDS)
    answer = interrupt(controller, process, signal.SIGTERM)
    record = answer.round_record("SHORT")
    assert record["verdict"] == "pass" and record["finished_ms"] > record["started_ms"]
    assert [node["missing"] for node in record["nodes"]] == [[], []]
    assert answer.folder is not None
    large_file = answer.folder / "SHORT/round1" / f"{testbed.hosts[1].address}_noderank1" / "large"
    assert large_file.stat().st_size == LARGE_MB << 20
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["pass", "aborted"]
    assert answer.run_record()["cases"][1]["rounds"] == [] and not (answer.folder / "NEVER").exists()


def test_a_second_signal_leaves_at_once_and_what_it_prints_cleans_up(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"LONG": LONG})
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    with frozen(testbed.hosts[1].pids(*SSHD)):
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
        assert process.poll() is None, "a frozen host holds the clean end up"
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        answer = controller.finish(process)
        assert time.monotonic() - began < 2.0
    assert answer.exit_code == 130 and answer.folder is not None
    command = next(line for line in answer.output.splitlines() if " clean " in line and "run.py" in line)
    words = shlex.split(command)
    assert words[-2] == "clean" and words[-1].endswith(answer.folder.name) and controller.containers()
    cleaned = subprocess.run(words, cwd="/", capture_output=True, text=True)
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    wait_until("the end of the ranks", lambda: rank_process(0) is None and rank_process(3) is None, 10)
