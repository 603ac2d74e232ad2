"""A node that is reached by steps keeps the Host protocol: bytes, exit codes, deadlines, the end of its job."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator

import pytest

from run_benchmarks.errors import CommandError, DeadlineError, LinkLostError
from run_benchmarks.hosts.base import CANCELLED
from run_benchmarks.hosts.outages import OutOfReachError
from run_benchmarks.hosts.slurm import allocation as allocations
from run_benchmarks.hosts.slurm.allocation import Allocation
from run_benchmarks.hosts.slurm.host import SlurmHost
from tests.cluster.controller import wait_until
from tests.cluster.slurm.cluster import SlurmCluster
from tests.cluster.slurm.files import CPUS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
SLEEP = "3127"  # seconds, by which a process is found


@pytest.fixture
def host(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmHost]:
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.environment["SLURM_CONF"])
    job = slurm_cluster.allocate(1, "--nodelist=node1")
    yield SlurmHost("node1", Allocation(number=job, is_ours=True))
    slurm_cluster.cancel_all()


def sleeping(cluster: SlurmCluster) -> str:
    return cluster.hosts[0].exec(["sh", "-c", f"pgrep -f 'sleep [{SLEEP[0]}]{SLEEP[1:]}' || true"]).stdout


def test_bytes_exit_codes_and_streams_arrive_as_they_are(host: SlurmHost) -> None:
    data = bytes(range(256)) * 4096 + os.urandom(1 << 20)
    received = bytearray()
    done = host.run(["sh", "-c", "cat; echo said >&2"], deadline=60, stdin=io.BytesIO(data), on_stdout=received.extend)
    assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()
    assert (done.exit_code, done.stderr) == (0, "said\n")
    words = ["printf", "%s|", "a b", "$(id)", "'\"\\", "é\n"]
    assert host.run(words, deadline=30).stdout == "a b|$(id)|'\"\\|é\n|"
    with pytest.raises(CommandError, match="exited 137"):
        host.run(["sh", "-c", "kill -9 $$"], deadline=30)
    assert host.run(["false"], deadline=30, check=False).exit_code == 1


def test_a_step_that_holds_tasks_has_the_node_s_processors_and_leaves_room_for_others(
    host: SlurmHost, slurm_cluster: SlurmCluster
) -> None:
    script = f'echo ready; echo "$SLURM_CPUS_ON_NODE" >/tmp/cpus; exec sleep {SLEEP}'
    host.hold_step(["sh", "-c", script], b"", seconds=30)
    assert host.run(["cat", "/tmp/cpus"], deadline=30).stdout == f"{CPUS}\n"
    assert host.run(["sh", "-c", "echo $SLURM_CPUS_ON_NODE"], deadline=30).stdout == "1\n"
    with pytest.raises(LinkLostError, match="did not begin within 1 s"):
        host.hold_step(["sh", "-c", "echo no >&2; sleep 9"], b"", seconds=1)
    assert host._allocation.give_back() == ""
    wait_until("the end of the tasks", lambda: not sleeping(slurm_cluster), 30)


def test_nothing_runs_on_after_a_deadline_or_a_cancelling(host: SlurmHost, slurm_cluster: SlurmCluster) -> None:
    with pytest.raises(DeadlineError, match="did not end within 2 s"):
        host.run(["sleep", SLEEP], deadline=2)
    cancel = threading.Event()
    threading.Timer(1.0, cancel.set).start()
    assert host.run(["sleep", SLEEP], deadline=60, cancel=cancel).exit_code == CANCELLED
    wait_until("the end of both", lambda: not sleeping(slurm_cluster), 20)


def test_a_job_that_ended_is_no_outage(
    host: SlurmHost, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "QUERY_SECONDS", 0.0)
    host.connect()
    slurm_cluster.call(["scancel", host._allocation.number])
    with pytest.raises(OutOfReachError, match="somebody cancelled it"):
        host.run(["true"], deadline=30)
