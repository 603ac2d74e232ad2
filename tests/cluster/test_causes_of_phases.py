"""What breaks a round before its ranks work, or after they did, is named as it is while they do."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import images
from tests.cluster.access import etc_hosts
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, in_training, rank_processes, wait_until
from tests.cluster.faulty_project import LIGHT, WAITS
from tests.cluster.test_causes import launcher_of, workload
from tests.cluster.test_kept import start_paused
from tests.cluster.test_storage import small_disk

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
LINK_LIMIT = 5.0
NAMES_OF_ITS_OWN = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
ON_ONE_HOST = "clusterdyno-test/on-one-host:3"


def reason(answer: Answer, case: str, host: str, *, lost: bool = True) -> str:
    """Why that case's round failed because of that host, and whether the infrastructure lost it."""
    record: dict[str, Any] = answer.round_record(case)
    failure = record["first_failure"]
    assert (record["verdict"], failure["host"], failure["lost"]) == ("fail", host, lost), record["reason"]
    return str(record["reason"])


@pytest.mark.nightly
def test_what_happens_to_containers_before_they_start(controller: Controller, testbed: TestBed, tmp_path: Path) -> None:
    """The engine stops before a container is made; a container is removed before it is started."""
    victim, pauses = testbed.hosts[1], tmp_path / "pauses"
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    controller.configure_test({"ENGINE": LIGHT, "REMOVED": LIGHT})
    points = ("create_tasks@ENGINE", "prepare_node@REMOVED", "start_workload@REMOVED")
    process = start_paused(controller, pauses, victim.address, *points)
    wait_until("the launch", (pauses / "create_tasks@ENGINE").exists)
    victim.stop_engine()
    (pauses / "create_tasks@ENGINE").unlink()
    run = controller.newest_run()
    assert run is not None
    wait_until("the verdict", (run / "ENGINE/round1/round.json").exists)
    wait_until("the next preparation", (pauses / "prepare_node@REMOVED").exists)
    victim.start_engine()
    (pauses / "prepare_node@REMOVED").unlink()
    wait_until("the containers", (pauses / "start_workload@REMOVED").exists)
    client = victim.connect_docker()
    (made,) = [each for each in client.containers.list(all=True) if each.status == "created"]
    made.remove(force=True)
    client.close()
    (pauses / "start_workload@REMOVED").unlink()
    answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    found = reason(answer, "ENGINE", victim.address)
    assert "its runtime does not answer" in found and "removed" not in found
    assert "its container was removed, and not by this run" in reason(answer, "REMOVED", victim.address)
    assert controller.call("clean", run.name).exit_code == 0


def test_a_disk_that_is_full_before_a_round_and_a_reboot_after_it(
    controller: Controller, testbed: TestBed, tmp_path: Path
) -> None:
    """The folder of the logs is on a file system that a reboot empties."""
    victim, pauses = testbed.hosts[1], tmp_path / "pauses"
    controller.configure_cluster(LINK_LIMIT=60.0)
    controller.configure_test({"DISK": LIGHT, "REBOOT": LIGHT}, **PROCESS)
    with small_disk(victim, controller.logs, "size=1200m"):
        points = ("prepare_node@DISK", "prepare_node@REBOOT", "collect_node@REBOOT")
        process = start_paused(controller, pauses, victim.address, *points)
        wait_until("the preparation", (pauses / "prepare_node@DISK").exists)
        victim.exec(["mount", "-o", "remount,size=4k", str(controller.logs)], check=False)
        victim.exec(["sh", "-c", f"dd if=/dev/zero of={controller.logs}/fill bs=1M count=1300"], check=False)
        (pauses / "prepare_node@DISK").unlink()
        run = controller.newest_run()
        assert run is not None
        wait_until("the verdict", (run / "DISK/round1/round.json").exists)
        wait_until("the next preparation", (pauses / "prepare_node@REBOOT").exists)
        victim.exec(["sh", "-c", f"rm {controller.logs}/fill; mount -o remount,size=1200m {controller.logs}"])
        (pauses / "prepare_node@REBOOT").unlink()
        wait_until("the collection", (pauses / "collect_node@REBOOT").exists)
        victim.reboot()
        try:
            (pauses / "collect_node@REBOOT").unlink()
            answer = controller.finish(process)
        finally:
            victim.forget_restart()
            victim.exec(
                ["mount", "-t", "tmpfs", "tmpfs", str(controller.logs)], check=False
            )  # for the end of the block
    assert answer.exit_code == 1, answer.output
    found = reason(answer, "DISK", victim.address, lost=False)
    assert "the disk is full: " in found and str(controller.logs) in found and "rebooted" not in found
    assert "the host was rebooted during the round; not collected: " in reason(answer, "REBOOT", victim.address)


@pytest.mark.nightly
def test_a_launcher_that_the_kernel_ends_for_lack_of_memory(controller: Controller, testbed: TestBed) -> None:
    """Its container's limit falls below what it uses; of its processes, the kernel ends the launcher first."""
    victim = testbed.hosts[1]
    controller.configure_test({"MEMORY": WAITS})
    process = controller.start()
    wait_until("work of ranks 1 and 3", lambda: in_training(1) and in_training(3))
    launcher, container = launcher_of(3), workload(victim)
    Path(f"/proc/{launcher.pid}/oom_score_adj").write_text("1000")
    for pid in victim.pids("docker-init"):
        Path(f"/proc/{pid}/oom_score_adj").write_text("-1000")
    code = "import time; kept = bytearray(1 << 30); time.sleep(60)"
    container.update(mem_limit="400m", memswap_limit="400m")
    container.exec_run(["python3", "-c", code], detach=True)
    answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    found = reason(answer, "MEMORY", victim.address, lost=False)
    assert "for lack of memory" in found and "docker stop" not in found, found
    assert rank_processes() == {}


@pytest.mark.nightly
def test_a_host_whose_name_stops_resolving(controller: Controller, testbed: TestBed, tmp_path: Path) -> None:
    """The head node reads another file of names than this machine; sshd of the host is restarted meanwhile."""
    victim, names = testbed.hosts[1], tmp_path / "hosts"
    names.write_text(etc_hosts(testbed.hosts))
    controller.configure_cluster(HOSTS=[host.name for host in testbed.hosts], LINK_LIMIT=LINK_LIMIT)
    controller.configure_test({"NAME": WAITS}, **PROCESS)

    def started(*words: str) -> subprocess.Popen[str]:
        argv = ["unshare", "--mount", "sh", "-c", NAMES_OF_ITS_OWN, "sh", str(names), *controller.argv(*words)]
        return subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    process = started()
    wait_until("work of ranks 1 and 3", lambda: in_training(1) and in_training(3))
    names.write_text(etc_hosts(testbed.hosts[:1]))
    victim.stop_sshd()
    victim.start_sshd()
    answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    found = reason(answer, "NAME", victim.name)
    assert "connecting again: " in found and f"the name {victim.name} does not resolve" in found, found
    assert answer.folder is not None
    names.write_text(etc_hosts(testbed.hosts))
    assert controller.finish(started("clean", answer.folder.name)).exit_code == 0
    assert rank_processes() == {}


@pytest.mark.nightly
def test_an_image_arrives_over_a_link_that_breaks(controller: Controller, testbed: TestBed) -> None:
    """The sessions of the host that it is brought to are killed; sshd is back some seconds later."""
    client, victim = testbed.hosts[0].connect_docker(), testbed.hosts[1]
    client.images.get(images.BASE_IMAGE).tag(*ON_ONE_HOST.split(":"))
    try:
        controller.configure_cluster(LINK_LIMIT=60.0)
        controller.configure_test({"SHORT": LIGHT}, IMAGE=ON_ONE_HOST, BASE_IMAGE=None, WHEELHOUSE=None)
        process = controller.start()
        log = f"Bringing image {ON_ONE_HOST}"
        wait_until("the transfer", lambda: (run := controller.newest_run()) and log in (run / "run.log").read_text())
        victim.stop_sshd()
        time.sleep(3.0)
        victim.start_sshd()
        answer = controller.finish(process)
    finally:
        client.images.remove(ON_ONE_HOST)
        client.close()
    assert "trying to reconnect for 60 s" in answer.output, answer.output
    (image,) = answer.run_record()["images"]
    assert image["ids"].keys() == {host.address for host in testbed.hosts} and len(set(image["ids"].values())) == 1
    other = victim.connect_docker()
    other.images.remove(ON_ONE_HOST)
    other.close()
