"""The same as `composed`, with the four ranks on two hosts whose wires are held to a rate."""

import tempfile
from pathlib import Path

from tests.cluster.bed import TestBed
from tests.performance.composed import occasions, rows_of
from tests.performance.rows import Row

RATE = "400mbit"


def measure(*, smoke: bool = False) -> list[Row]:
    """Two rows for each job."""
    with tempfile.TemporaryDirectory() as folder, TestBed(2, Path(folder) / "bed", engine=False) as bed:
        for host in bed.hosts:
            host.impair(rate=RATE)
        return measure_on(bed, smoke=smoke)


def measure_on(bed: TestBed, *, smoke: bool) -> list[Row]:
    """The rows of `measure`, on a bed of two hosts as their wires are."""
    nodes = [host.entering(GLOO_SOCKET_IFNAME="eth0") for host in bed.hosts]
    found = occasions("composed_on_hosts", smoke=smoke, address=bed.hosts[0].address, nodes=nodes)
    return rows_of(f"two hosts at {RATE}", found)
