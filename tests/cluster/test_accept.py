"""Acceptances on four real hosts: whoever has a bad disk, CPU or wire is taken out, with proof, and nobody else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller
from tests.cluster.disturbances import hog, loss, rate
from tests.cluster.host import ClusterHost
from tests.cluster.pairs import SLOW, four_healthy_hosts
from tests.cluster.slow_disk import hold_disk
from tests.tiers import samples

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(7200)]
HEALTHY_DISK, SLOW_DISK = 40 << 20, 8 << 20
"""Bytes a second, below what the machine's disk has for all hosts at once."""
LOST = 0.03
Fault = Callable[[TestBed, ClusterHost], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBed]:
    with four_healthy_hosts(tmp_path_factory.mktemp("bed")) as bed:
        for host in bed.hosts:
            hold_disk(host, HEALTHY_DISK)
        own_processors(bed)
        yield bed


def own_processors(bed: TestBed) -> None:
    """Give each host one processor: threads of a rank that wait for each other would else share all with all hosts."""
    cpus = sorted(os.sched_getaffinity(0))
    for number, host in enumerate(bed.hosts):
        for pid in host.pids("sshd"):
            os.sched_setaffinity(pid, {cpus[number % len(cpus)]})


@contextmanager
def stolen_cpu(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """Another tenant's loops have most of the host's processor."""
    with hog(bed, victim):
        yield
    own_processors(bed)


@contextmanager
def slow_disk(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """The host's disk has a fifth of the rate of the others."""
    hold_disk(victim, SLOW_DISK)
    try:
        yield
    finally:
        hold_disk(victim, HEALTHY_DISK)


def accepted(folder: Path, bed: TestBed, *words: str) -> tuple[Answer, dict[str, Any], Path]:
    """One acceptance: what run.py said, and its record."""
    folder.mkdir()
    controller = Controller(folder, bed)
    controller.configure_test({"MINE": {"nnodes": 4, "nproc": 1}}, **PROCESS)
    answer = controller.finish(controller.start("accept", "--nproc", "1", *words), within=1200)
    files = [*controller.logs.glob("accept*/accept.json")]
    assert len(files) == 1, answer.output
    (file,) = files
    return answer, json.loads(file.read_text()), file


def test_the_host_with_the_slow_wire_is_taken_out_and_the_others_train(bed: TestBed, tmp_path: Path) -> None:
    with rate(bed, bed.hosts[2], SLOW):
        answer, record, file = accepted(tmp_path / "run", bed, "--budget", "8m")
    bad = bed.hosts[2].address
    assert answer.exit_code == 1, answer.output
    assert list(record["drain"]) == [bad]
    assert any(said.startswith("again: ") for said in record["drain"][bad]), "on another occasion, too"
    assert [rung["verdict"] for rung in record["rungs"]] == ["pass", "pass", "fail", "pass"]
    whole = record["rungs"][3]
    assert whole["hosts"] == [host for host in record["hosts"] if host != bad]
    assert len(whole["runs"]) == 2 and whole["soak_seconds"] > 0, "a soak, too"
    assert record["hosts"][bad] == "out" and set(record["hosts"].values()) == {"out", "accepted"}
    assert f"--hosts {bad}," in record["again"][bad] and f"--against {file}" in record["again"][bad]
    assert record["usual"].keys() == {
        "matmul_fp32", "memory", "host_to_device", "training", "disk_write", "disk_read",
    }  # fmt: skip
    page = file.with_name("accept.html").read_text()
    assert page.index(bad) < page.index("Rungs") and "(estimate)" in page
    assert all(rung["estimated_seconds"] for rung in record["rungs"])
    assert record["commands"][0].startswith(f"scontrol update nodename={bad} state=drain ")


@pytest.mark.parametrize(
    ("fault", "rung", "evidence"),
    [
        (slow_disk, "single", "disk_"),
        (stolen_cpu, "single", "below its peers' median"),
        (lambda bed, victim: rate(bed, victim, SLOW), "network", ""),
        (lambda bed, victim: loss(bed, victim, LOST), "network", ""),
    ],
    ids=["slow disk", "stolen CPU", "limited link", "lossy link"],
)
def test_a_bad_host_is_found_each_time(fault: Fault, rung: str, evidence: str, bed: TestBed, tmp_path: Path) -> None:
    found: list[list[str]] = []
    truth: list[list[str]] = []
    for number in samples(1, 10):
        victim = bed.hosts[number % 4]
        with fault(bed, victim):
            _, record, _ = accepted(tmp_path / f"run{number}", bed, "--rungs", rung, "--budget", "15m")
        truth.append([victim.address])
        found.append(list(record["drain"]))
        assert any(evidence in said for said in record["drain"].get(victim.address, [""])), record["drain"]
    assert found == truth


def test_healthy_hosts_are_never_taken_out(bed: TestBed, tmp_path: Path) -> None:
    drained = []
    for number in samples(1, 20):
        _, record, _ = accepted(tmp_path / f"run{number}", bed, "--rungs", "single,network", "--budget", "15m")
        drained.append(record["drain"])
    assert drained == [{}] * len(drained)
