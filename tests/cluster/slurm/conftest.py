"""A Slurm cluster for the session, and run.py against it."""

from collections.abc import Iterator

import pytest

from tests.cluster.slurm.cluster import SlurmCluster, missing
from tests.conftest import testbed_folder


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Two nodes of a real Slurm; up once a session, when first needed. A test that breaks something mends it."""
    if lacking := missing():
        pytest.skip(f"tests of Slurm need {'; '.join(lacking)}")
    with SlurmCluster(2, testbed_folder() / "slurm") as cluster:
        yield cluster
