"""Nothing that a run measured is lost: not by a resume that fails, by a full disk of the head node, or by a link."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Controller, in_training, rank_process, wait_until
from tests.cluster.faulty_project import LIGHT, WAITS
from tests.cluster.host import SSHD
from tests.cluster.light.__main__ import GO_ON
from tests.cluster.system import frozen
from tests.cluster.test_resume import journal, kill_in, resume

# run.py, which waits in the functions of rounds.round of these names, in their first call for a host: it makes
# <folder>/<name> and goes on once that is gone. <module>:<name>: of another module; <name>@CASE: in a round of CASE.
PAUSED_IN = """
import sys, time
from importlib import import_module
from pathlib import Path
folder, host, names, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(), sys.argv[4:]
def paused(word):
    place, _, case = word.partition("@")
    where, _, name = place.rpartition(":")
    module, seen = import_module("run_benchmarks." + (where or "rounds.round")), []
    action = getattr(module, name)
    def pause(first, *rest, **options):
        given = getattr(first, "plan", rest[0] if rest else None)
        node = getattr(given, "node", given)
        is_there = host in (getattr(first, "name", ""), getattr(node, "host", ""))
        if is_there and not seen and (not case or f"/{case}/" in node.log_dir_host):
            seen.append((folder / word).touch())
            while (folder / word).exists():
                time.sleep(0.05)
        return action(first, *rest, **options)
    setattr(module, name, pause)
for name in names:
    paused(name)
from run_benchmarks.commands.cli import main
main()
"""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
LINK_LIMIT = 5.0


def logs_on_hosts(controller: Controller, testbed: TestBed) -> int:
    """How many logs of ranks there are on the hosts."""
    find = ["find", str(controller.logs), "-name", "rank*.out.log"]
    return sum(len(host.exec(find, check=False).stdout.splitlines()) for host in testbed.hosts if host.pid is not None)


@contextmanager
def small_head(controller: Controller, size: str) -> Iterator[Path]:
    """A file system of its own for the runs' results; gives the file that fills it."""
    controller.logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(controller.logs)], check=True)
    try:
        yield controller.logs / "fill"
    finally:
        subprocess.run(["umount", "-l", str(controller.logs)], check=True)


def fill(file: Path) -> None:
    subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=64k"], capture_output=True, check=False)


def start_paused(controller: Controller, folder: Path, host: str, *names: str) -> subprocess.Popen[str]:
    """run.py, which waits in these functions for this host; see PAUSED_IN."""
    folder.mkdir()
    argv = [sys.executable, "-c", PAUSED_IN, str(folder), host, " ".join(names), *controller.argv()[2:]]
    return subprocess.Popen(argv, cwd=controller.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.nightly
def test_a_resume_that_fails_in_its_check_leaves_the_running_round_alone(
    controller: Controller, testbed: TestBed
) -> None:
    """One host down, then Ctrl-C; the third resume takes over what runs."""
    controller.configure_test({"ONLY": WAITS}, **PROCESS)
    run = kill_in(controller, "ONLY")
    ranks = [rank_process(rank) for rank in range(4)]
    testbed.hosts[1].link_down()
    down = controller.call("resume", run.name)
    assert down.exit_code == 3 and "ONLY is open" in down.output, down.output
    assert logs_on_hosts(controller, testbed) == 4
    testbed.hosts[1].link_up()
    with frozen(testbed.hosts[1].pids(*SSHD)):
        before = (run / "run.log").read_text().count("Step 1")
        process = controller.start("resume", run.name)
        wait_until("its check", lambda: (run / "run.log").read_text().count("Step 1") > before)
        process.send_signal(signal.SIGINT)
        interrupted = controller.finish(process)
    assert interrupted.exit_code == 130 and "ONLY is open" in interrupted.output, interrupted.output
    assert logs_on_hosts(controller, testbed) == 4
    assert all(rank is not None and rank.is_running() for rank in ranks)
    answer = resume(controller, run, "ONLY")
    assert answer.exit_code == 0, answer.output
    assert answer.round_record("ONLY")["attempt"] == 1 and not (run / "ONLY/round1_try2").exists()
    assert [node["missing"] for node in answer.round_record("ONLY")["nodes"]] == [[], []]
    assert logs_on_hosts(controller, testbed) == 0


@pytest.mark.nightly
def test_no_attempt_begins_beside_an_earlier_one_whose_host_was_out_of_reach(
    controller: Controller, testbed: TestBed
) -> None:
    """One controller is killed, another gives the round up, a third finds the host back, with its ranks."""
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT, MIN_HOSTS=1)
    controller.configure_test({"ONLY": {**WAITS, "retries": 1}}, **PROCESS)
    run = kill_in(controller, "ONLY")
    left = [rank_process(rank) for rank in (2, 3)]
    testbed.hosts[1].link_down()
    given_up = controller.call("resume", run.name)
    assert given_up.exit_code == 1 and given_up.round_record("ONLY")["verdict"] == "fail", given_up.output
    testbed.hosts[1].link_up()
    assert all(rank is not None and rank.is_running() for rank in left)
    process = controller.start("resume", run.name)
    wait_until("the next attempt", lambda: in_training(3) and (run / "ONLY/round1_try2").exists())
    assert not any(rank is not None and rank.is_running() for rank in left), "two attempts at once"
    for host in testbed.hosts:
        there = f"{controller.logs}/.hosts/*/ONLY/round1_try2/*_noderank?"
        host.exec(["sh", "-c", f"for folder in {there}; do touch $folder/{GO_ON}; done"])
    answer = controller.finish(process)
    assert answer.exit_code == 0 and "was collected again (attempt 1)" in answer.output, answer.output


@pytest.mark.nightly
@pytest.mark.parametrize("word", ["resume", "collect"])
def test_a_head_node_whose_disk_fills_in_a_round(controller: Controller, testbed: TestBed, word: str) -> None:
    """Nothing is removed from the hosts; once there is room, the round is collected, and not repeated."""
    controller.configure_test({"FIRST": LIGHT, "ONLY": WAITS}, **PROCESS)
    with small_head(controller, "8m") as filler:
        process = controller.start()
        wait_until("the second round", lambda: "ONLY Round 1 starts" in _log(controller) and in_training(3))
        fill(filler)
        controller.let_go("ONLY")
        full = controller.finish(process)
        run = full.folder
        assert run is not None and full.exit_code == 1, full.output
        assert "own disk is full" in full.output and f"resume {run}" in full.output and "Traceback" not in full.output
        assert logs_on_hosts(controller, testbed) == 8
        filler.unlink()
        answer = controller.call(word, run.name)
        assert answer.exit_code == 0, answer.output
        record = answer.round_record("ONLY")
        assert (record["verdict"], record["attempt"]) == ("pass", 1)
        assert [node["missing"] for node in record["nodes"]] == [[], []]
        assert sum(event["event"] == "round_started" for event in journal(run)) == 2
        assert logs_on_hosts(controller, testbed) == 0


def _log(controller: Controller) -> str:
    run = controller.newest_run()
    return (run / "run.log").read_text() if run is not None and (run / "run.log").exists() else ""


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [PROCESS, {}], ids=["process", "docker"])
def test_a_round_whose_hosts_lost_power_with_the_controller_is_run_again(
    controller: Controller, testbed: TestBed, settings: dict[str, object]
) -> None:
    controller.configure_test({"ONLY": {**LIGHT, "overrides": {"pause": 1.0}}}, **settings)
    run = kill_in(controller, "ONLY")
    for host in testbed.hosts:
        host.reboot()
    try:
        answer = controller.call("resume", run.name)
    finally:
        for host in testbed.hosts:
            host.forget_restart()
    assert answer.exit_code == 0, answer.output
    first, second = (answer.round_record("ONLY", attempt=attempt) for attempt in (1, 2))
    assert first["verdict"] == "aborted" and second["verdict"] == "pass", first["reason"]
    names = ", ".join(host.address for host in testbed.hosts)
    assert first["reason"] == f"{names} were restarted while the round ran; it is run again"
    assert "rank0.out.log" in first["nodes"][0]["files"], "what they left is collected"


CHECK = "inspection.check:gather"
PHASES = ("prepare_node", "create_tasks", "start_workload", "collect_node")


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [PROCESS, {}], ids=["process", "docker"])
def test_a_round_outlives_an_sshd_that_is_gone_in_each_of_its_phases(
    controller: Controller, testbed: TestBed, tmp_path: Path, settings: dict[str, object]
) -> None:
    """In the check, and in a round one after the other: sshd and its sessions are killed, and it is back 3 s later."""
    controller.configure_cluster(LINK_LIMIT=60.0)
    controller.configure_test({"ONLY": LIGHT}, **settings)
    victim = testbed.hosts[1]
    process = start_paused(controller, tmp_path / "pauses", victim.address, CHECK, *PHASES)
    for name in (CHECK, *PHASES):
        wait_until(name, lambda name=name: (tmp_path / "pauses" / name).exists())  # type: ignore[misc]
        victim.stop_sshd()
        (tmp_path / "pauses" / name).unlink()
        time.sleep(3.0)
        victim.start_sshd()
    answer = controller.finish(process)
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("trying to reconnect for 60 s") == 1 + len(PHASES), answer.output
    record = answer.round_record("ONLY")
    assert record["verdict"] == "pass" and [node["missing"] for node in record["nodes"]] == [[], []]
    outages = [remark for remark in record["integrity"]["remarks"] if remark["kind"] == "outage"]
    assert len(outages) == len(PHASES) and {remark["host"] for remark in outages} == {victim.address}, outages
    assert controller.containers() == [] and logs_on_hosts(controller, testbed) == 0


@pytest.mark.nightly
def test_a_host_that_restarts_while_it_is_collected_and_before_the_next_round(
    controller: Controller, testbed: TestBed, tmp_path: Path
) -> None:
    controller.configure_cluster(LINK_LIMIT=60.0)
    controller.configure_test({"FIRST": LIGHT, "NEXT": LIGHT}, **PROCESS)
    victim = testbed.hosts[1]
    process = start_paused(controller, tmp_path / "pauses", victim.address, "collect_node")
    wait_until("the collection", lambda: (tmp_path / "pauses/collect_node").exists())
    victim.reboot()
    victim.forget_restart()
    (tmp_path / "pauses/collect_node").unlink()
    answer = controller.finish(process)
    assert answer.exit_code == 0, answer.output
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["pass", "pass"]


@pytest.mark.parametrize("word", ["collect", pytest.param("resume", marks=pytest.mark.nightly)])
def test_what_could_not_be_collected_is_owed(
    controller: Controller, testbed: TestBed, tmp_path: Path, word: str
) -> None:
    """A host is out of reach for too long when its files are to come; it is back when the run has ended."""
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    controller.configure_test({"ONLY": LIGHT, "ONE": {**LIGHT, "nnodes": 1}}, **PROCESS)
    victim = testbed.hosts[1]
    process = start_paused(controller, tmp_path / "pauses", victim.address, "collect_node")
    wait_until("the collection", lambda: (tmp_path / "pauses/collect_node").exists())
    victim.stop_sshd()
    (tmp_path / "pauses/collect_node").unlink()
    failed = controller.finish(process)
    assert failed.exit_code == 1 and failed.folder is not None, failed.output
    run, record = failed.folder, failed.round_record("ONLY")
    assert record["verdict"] == "fail" and "out of reach" in record["reason"], record["reason"]
    assert f"collect {run}`" in failed.output and logs_on_hosts(controller, testbed) == 2
    victim.start_sshd()
    assert f"collection owed by {victim.address}" in controller.call("status", run.name).output
    answer = controller.call(word, run.name)
    assert answer.exit_code == 0, answer.output
    record = answer.round_record("ONLY")
    assert (record["verdict"], record["attempt"]) == ("pass", 1), record["reason"]
    assert [(node["missing"], node["incomplete"]) for node in record["nodes"]] == [([], False)] * 2
    assert not any("not collected" in warning for warning in record["warnings"])
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["pass", "pass"]
    assert len(answer.run_record()["hosts"]) == 2 and all(host["kernel"] for host in answer.run_record()["hosts"])
    assert "owed" not in controller.call("status", run.name).output and logs_on_hosts(controller, testbed) == 0
    assert controller.call("verify", run.name).exit_code == 0
    assert "nothing is to be collected" in controller.call("collect", run.name).output
    assert sum(event["event"] == "round_started" for event in journal(run)) == 2


@pytest.mark.nightly
def test_ranks_that_worked_to_their_end_out_of_reach_count_once_their_record_is_here(
    controller: Controller, testbed: TestBed
) -> None:
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    controller.configure_test({"ONLY": WAITS}, **PROCESS)
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    testbed.hosts[1].drop_head()
    try:
        controller.let_go("ONLY")
        failed = controller.finish(process)
    finally:
        testbed.hosts[1].rejoin_head()
    assert failed.exit_code == 1 and failed.round_record("ONLY")["verdict"] == "fail", failed.output
    assert failed.folder is not None
    answer = controller.call("collect", failed.folder.name)
    assert answer.exit_code == 0, answer.output
    record = answer.round_record("ONLY")
    assert record["verdict"] == "pass" and [node["exit_code"] for node in record["nodes"]] == [0, 0], record["reason"]
    assert any("node_exit.json says that its tasks ended with 0" in warning for warning in record["warnings"])
    assert logs_on_hosts(controller, testbed) == 0
