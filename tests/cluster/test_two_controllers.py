"""Two controllers on the same hosts at once: neither gets in the other's way, and each removes its own alone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Controller, wait_until
from tests.cluster.host import Host

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SHORT: dict[str, object] = {"overrides": {"sizes": "8..1M x8", "iterations": 5}}
LONG: dict[str, object] = {"overrides": {"sizes": "1M", "iterations": 1_000_000, "warmup_iterations": 0}}
LAUNCHES = "training.benchmarks.driver.launch"


def launches(testbed: TestBed, controller: Controller) -> list[int]:
    """How many launches of this controller each host has."""
    counts = []
    for host in testbed.hosts:
        lines = host.exec(["ps", "-eo", "args", "--no-headers"]).stdout.splitlines()
        counts.append(sum(f"-m {LAUNCHES} --log_dir {controller.logs}/" in line for line in lines))
    return counts


def temporary(host: Host) -> list[str]:
    """What launches made in the temporary folder of a host."""
    return host.exec(["find", "/tmp", "-maxdepth", "1", "-name", "clusterdyno-*"]).stdout.split()


def test_both_run_at_once_and_one_is_interrupted(tmp_path: Path, testbed: TestBed) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (Controller(folder, testbed) for folder in folders)
    first.configure_test({"LONG": LONG, "NEVER": SHORT}, **PROCESS)
    second.configure_test({"SHORT": SHORT, "LONG": LONG}, **PROCESS)
    try:
        processes = [first.start(), second.start()]
        wait_until("both at work", lambda: launches(testbed, first) == launches(testbed, second) == [1, 1])
        wait_until("their temporary folders", lambda: all(len(temporary(host)) == 2 for host in testbed.hosts))
        for host in testbed.hosts:
            names = [name.removeprefix("/tmp/clusterdyno-") for name in temporary(host)]
            assert all(len(name) >= 8 for name in names) and names[0] != names[1], names
            search = ["find", "/tmp", "-mindepth", "1", "-path", str(images.REPOSITORY), "-prune", "-o"]
            assert host.exec([*search, "-perm", "/o+w", "!", "-type", "l", "-print"]).stdout == ""
        processes[0].send_signal(signal.SIGINT)
        answer = first.finish(processes[0])
        assert answer.exit_code == 130, answer.output
        assert launches(testbed, first) == [0, 0]
        case = second.newest_run()
        assert case is not None
        wait_until("the other's next case", lambda: (case / "LONG").exists() and launches(testbed, second) == [1, 1])
        assert answer.folder is not None and first.call("clean", answer.folder.name).exit_code == 0
        assert launches(testbed, second) == [1, 1]
        processes[1].send_signal(signal.SIGINT)
        answer = second.finish(processes[1])
        assert [each["verdict"] for each in answer.run_record()["cases"]] == ["pass", "aborted"], answer.output
        assert launches(testbed, second) == [0, 0]
    finally:
        first.end()
        second.end()
