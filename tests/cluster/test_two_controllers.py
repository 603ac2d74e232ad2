"""Two controllers on the same hosts at once: neither gets in the other's way, and each removes its own alone."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Controller, wait_until
from tests.cluster.faulty_project import LIGHT, LONG
from tests.cluster.host import ClusterHost

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]
LAUNCHES = "training.benchmarks.driver.launch"


def launches(testbed: TestBed, run: Path) -> list[int]:
    """How many launches of this run each host has; the master port tells whose it is."""
    journal = run / "journal.jsonl"
    ports = re.findall(r'"master_port":(\d+)', journal.read_text()) if journal.exists() else []
    ours = re.compile(rf"-m {re.escape(LAUNCHES)} .*--master_port ({'|'.join(ports) or 'none'}) ")
    listings = [host.exec(["ps", "-eo", "args", "--no-headers"]).stdout.splitlines() for host in testbed.hosts]
    return [sum(ours.search(line) is not None for line in lines) for lines in listings]


def begin(controller: Controller) -> tuple[subprocess.Popen[str], Path]:
    """Start run.py; its process and the folder of its run."""
    last = controller.newest_run()
    process = controller.start()
    wait_until("a run", lambda: controller.newest_run() != last)
    run = controller.newest_run()
    assert run is not None
    return process, run


def temporary(host: ClusterHost) -> set[str]:
    """What launches made in the temporary folder of a host; those that were killed leave theirs."""
    return set(host.exec(["find", "/tmp", "-maxdepth", "1", "-name", "clusterdyno-*"]).stdout.split())


def test_both_run_at_once_and_one_is_interrupted(tmp_path: Path, testbed: TestBed, root: Path) -> None:
    """They share the folder of the results, and with it the owner: only their runs' names tell them apart."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (Controller(folder, testbed, root) for folder in folders)
    second.logs = first.logs
    first.configure_test({"LONG": LONG, "NEVER": LIGHT}, **PROCESS)
    second.configure_test({"SHORT": LIGHT, "LONG": LONG}, **PROCESS)
    before = {host.name: temporary(host) for host in testbed.hosts}

    def made(host: ClusterHost) -> list[str]:
        return sorted(temporary(host) - before[host.name])

    try:
        ours, our_run = begin(first)
        theirs, their_run = begin(second)
        wait_until("both at work", lambda: launches(testbed, our_run) == launches(testbed, their_run) == [1, 1])
        wait_until("their temporary folders", lambda: all(len(made(host)) == 2 for host in testbed.hosts))
        for host in testbed.hosts:
            names = [name.removeprefix("/tmp/clusterdyno-") for name in made(host)]
            assert all(len(name) >= 8 for name in names) and names[0] != names[1], names
            search = ["find", "/tmp", "-mindepth", "1", "-path", str(images.REPOSITORY), "-prune", "-o"]
            assert host.exec([*search, "-perm", "/o+w", "!", "-type", "l", "-print"]).stdout == ""
        ours.send_signal(signal.SIGINT)
        answer = first.finish(ours)
        assert answer.exit_code == 130, answer.output
        assert launches(testbed, our_run) == [0, 0]
        wait_until("the other's next case", lambda: (their_run / "LONG").exists())
        wait_until("its tasks", lambda: launches(testbed, their_run) == [1, 1])
        assert first.call("clean", our_run.name).exit_code == 0
        assert launches(testbed, their_run) == [1, 1], "the clean-up of one run touched the other"
        theirs.send_signal(signal.SIGINT)
        answer = second.finish(theirs)
        assert [each["verdict"] for each in answer.run_record()["cases"]] == ["pass", "aborted"], answer.output
        assert launches(testbed, their_run) == [0, 0]
    finally:
        first.end()
        second.end()
        for run in first.logs.glob("run*"):
            if launches(testbed, run) != [0, 0]:
                first.call("clean", run.name)
