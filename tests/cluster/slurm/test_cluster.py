"""The test cluster is a real Slurm: it schedules, starts, accounts."""

from __future__ import annotations

import pytest

from tests.cluster.slurm.cluster import SlurmCluster
from tests.cluster.slurm.files import CPUS
from tests.cluster.system import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_job_runs_on_each_host_and_is_accounted(slurm_cluster: SlurmCluster) -> None:
    command = ["srun", "--nodes=2", f"--cpus-per-task={CPUS}", "--job-name=first", "sh", "-c"]
    said = slurm_cluster.call([*command, "echo $(cat /proc/sys/kernel/hostname) $SLURM_CPUS_ON_NODE"])
    assert sorted(said.splitlines()) == [f"node1 {CPUS}", f"node2 {CPUS}"]
    shown = ["sacct", "--noheader", "--parsable2", "--name=first", "--format=State,NNodes,User", "--allocations"]
    wait_until(
        lambda: slurm_cluster.call(shown) == "COMPLETED|2|root\n", timeout=20, what="its row in the accounts", pause=0.2
    )


def test_a_user_of_no_account_and_a_partition_that_is_not_there_are_refused(slurm_cluster: SlurmCluster) -> None:
    for option, said in (("--partition=none", "invalid partition"), ("--account=none", "Invalid account")):
        refused = ["sh", "-c", f"srun {option} true 2>&1 || true"]
        assert said in slurm_cluster.call(refused)
