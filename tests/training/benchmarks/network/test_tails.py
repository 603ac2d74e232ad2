"""Networks whose slowest operation takes several times the median: a host with worse ones is named all the same."""

import csv
import re

import pytest

from run_benchmarks.console.command_line import ROOT
from tests.tiers import samples
from tests.training.benchmarks.network.tails import REPEATS, WORSE, row, scan


@pytest.mark.parametrize("repeats", [3, 10, 30])
def test_a_long_tail_that_everybody_has_is_no_alarm(repeats: int) -> None:
    for seed in samples(10, 200):
        found = scan(seed, repeats)
        assert found.findings == (), f"seed {seed}: {found.sentences}"


@pytest.mark.parametrize(("repeats", "worse"), [(10, 0.9), (30, 0.5)])
def test_a_host_with_a_worse_tail_is_named_for_it(repeats: int, worse: float) -> None:
    for seed in samples(3, 30):
        (finding,) = scan(seed, repeats, worse=worse).findings
        assert (finding.part, finding.hosts, finding.kind) == ("host", ("node3",), "intermittent"), f"seed {seed}"
        assert re.search(r"on all its pairs at 256K have operations [789](\.\d)? times slower", finding.evidence)


def test_stalls_are_told_apart_from_slow_operations() -> None:
    """Those of a host that stalls are its only symptom; a host that now stalls, now is slow, is slow at times."""
    (host,) = scan(1, 10, stall=0.6).findings
    assert (host.hosts, host.kind, host.symptoms) == (("node3",), "stalls", ("stalls",))
    (pair,) = scan(1, 10, lossy=0.9).findings
    assert (pair.part, pair.hosts, pair.symptoms) == ("link", ("node1", "node3"), ("stalls",))
    (both,) = scan(1, 10, worse=0.6, lossy=0.9).findings
    assert (both.part, both.hosts, both.kind) == ("host", ("node3",), "intermittent")


def test_the_table_of_the_documentation_is_made_here() -> None:
    stored = [*csv.reader((ROOT / "docs" / "data" / "named-by-repeats.csv").read_text(encoding="utf-8").splitlines())]
    assert [int(each[0]) for each in stored[1:]] == [*REPEATS] and {len(each) for each in stored} == {1 + len(WORSE)}
    assert [*map(int, stored[1][1:])] == row(REPEATS[0])
