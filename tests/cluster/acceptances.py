"""Acceptances on four real hosts whose wires, disks and processors are held, one of them made bad in one of four ways.

Each host's disk and wire are far slower than the machine's, so that other work on it hardly shows.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller
from tests.cluster.disturbances import hog, loss, rate
from tests.cluster.host import ClusterHost
from tests.cluster.images import REPOSITORY
from tests.cluster.pairs import SLOW, four_healthy_hosts
from tests.cluster.slow_disk import hold_disk

HEALTHY_DISK, SLOW_DISK = 40 << 20, 20 << 20
"""Bytes a second, below what the machine's disk has for all hosts at once."""
LOST = 0.03
SUSPECTED = 0.05
"""Share of acceptances of healthy hosts that suspect one of them once, by docs/data/accepted-on-real-hosts.csv."""


@dataclass(frozen=True)
class Fault:
    """A way to be bad. rung: the one that sees it; evidence: words of its reason, and of no other fault's of the rung;
    beside: a fault of another host in the same runs, which neither slows nor hides it.
    """

    begin: Callable[[TestBed, ClusterHost], AbstractContextManager[None]]
    rung: str
    evidence: str = ""
    beside: str = ""


@contextmanager
def accepted_hosts(folder: Path) -> Iterator[TestBed]:
    """A bed of four hosts that are equal in wire, disk and processor."""
    with four_healthy_hosts(folder) as bed:
        for host in bed.hosts:
            hold_disk(host, HEALTHY_DISK)
        _own_processors(bed)
        yield bed


def _own_processors(bed: TestBed) -> None:
    """Give each host one processor: threads of a rank that wait for each other would else share all with all hosts."""
    cpus = sorted(os.sched_getaffinity(0))
    for number, host in enumerate(bed.hosts):
        for pid in host.pids("sshd"):
            os.sched_setaffinity(pid, {cpus[number % len(cpus)]})


@contextmanager
def _stolen_cpu(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """Another tenant's loop has most of the host's processor."""
    with hog(bed, victim):
        yield
    _own_processors(bed)


@contextmanager
def _slow_disk(bed: TestBed, victim: ClusterHost) -> Iterator[None]:
    """The host's disk has half the rate of the others."""
    hold_disk(victim, SLOW_DISK)
    try:
        yield
    finally:
        hold_disk(victim, HEALTHY_DISK)


FAULTS: Mapping[str, Fault] = {
    "slow disk": Fault(_slow_disk, "single", "disk_", beside="stolen CPU"),
    "stolen CPU": Fault(_stolen_cpu, "single", "device 0: ", beside="slow disk"),
    "limited link": Fault(lambda bed, victim: rate(bed, victim, SLOW), "network"),
    "lossy link": Fault(lambda bed, victim: loss(bed, victim, LOST), "network"),
}


def accepted(folder: Path, bed: TestBed, *words: str, root: Path = REPOSITORY) -> tuple[Answer, dict[str, Any], Path]:
    """One acceptance: what run.py said, its record, and the record's file. root: whose run.py."""
    folder.mkdir()
    controller = Controller(folder, bed, root)
    controller.configure_test({"MINE": {"nnodes": len(bed.hosts), "nproc": 1}}, **PROCESS)
    try:
        answer = controller.finish(controller.start("accept", "--nproc", "1", *words), within=1200)
    except BaseException:
        controller.end()
        raise
    files = [*controller.logs.glob("accept*/accept.json")]
    assert len(files) == 1, answer.output
    (file,) = files
    return answer, json.loads(file.read_text()), file
