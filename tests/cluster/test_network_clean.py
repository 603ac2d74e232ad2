"""A healthy cluster raises no alarm: 21 runs of the pattern pairs on three real hosts; by day test_network has one.

Each round starts its processes and opens its connections anew, as a run does, and is judged by itself.
"""

from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller
from tests.cluster.pairs import measure, view_of

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.nightly, pytest.mark.timeout(600)]
CALLS, ROUNDS = 7, 3
# With as many repeats three hosts suffice to name one (docs/reference/network-benchmarks.md): silence means something.
HOSTS, REPEATS = 3, 5


@pytest.mark.parametrize("call", range(CALLS))
def test_a_healthy_cluster_raises_no_alarm(tmp_path: Path, four_hosts: TestBed, call: int) -> None:
    hosts = [host.address for host in four_hosts.hosts[:HOSTS]]
    overrides = {"iterations": 5, "repeats": REPEATS}
    answer = measure(Controller(tmp_path, four_hosts), overrides, rounds=ROUNDS, hosts=hosts)
    alarms = []
    for index in range(1, ROUNDS + 1):
        view = view_of(answer, index)
        assert view.hosts == tuple(hosts)
        alarms += [sentence for sentence in view.sentences if not sentence.startswith("no host or path stands out")]
    assert alarms == []
