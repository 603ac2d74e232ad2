"""run.py on a real Slurm: an allocation is asked for, used by steps alone, collected from, and given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm.cluster import SlurmCluster
from tests.cluster.slurm.controller import SlurmController

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def controller(tmp_path: Path, slurm_cluster: SlurmCluster, root: Path) -> Iterator[SlurmController]:
    made = SlurmController(tmp_path, slurm_cluster, root)
    yield made
    made.end()
    slurm_cluster.cancel_all()


def test_a_run_submits_a_job_uses_its_nodes_and_gives_them_back(controller: SlurmController) -> None:
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    record = answer.round_record("one")
    assert record["verdict"] == "pass"
    assert [node["host"] for node in record["nodes"]] == ["node1", "node2"]
    assert controller.jobs() == []
