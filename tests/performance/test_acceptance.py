"""The counts of acceptances on hosts: what a run adds, that the next call goes on, and which run comes next."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.performance.acceptance import FIRST_S, HEALTHY, Count, following, read, together, write


def found(drained: dict[str, list[str]], *once: str) -> dict[str, Any]:
    """What counts of the record of an acceptance."""
    rungs = [{"unsteady": {host: ["seen"] for host in once}}, {"unsteady": {}}]
    return {"drain": drained, "ready": not drained and not once, "rungs": rungs}


def test_a_call_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    file = tmp_path / "counts.csv"
    counts = read(file)
    assert {count.runs for count in counts} == {0} and counts[-1].fault == HEALTHY
    seen, other = {"n1": ["disk_read 1 GB/s"]}, ["device 0: matmul"]
    counts[0].add("n1", {"n1", "n3"}, found({**seen, "n3": other}), 100)
    counts[0].add("n2", {"n2", "n3"}, found({**seen, "n2": other}, "n2"), 200)
    counts[-1].add(None, set(), found({}), 300)
    assert (counts[0].found, counts[0].others, counts[0].once, counts[0].seconds) == (1, 1, 1, 150)
    assert (counts[-1].found, counts[-1].others, counts[-1].ready, counts[0].ready) == (0, 0, 1, 0)
    write(file, counts)
    assert read(file) == counts


def test_a_healthy_cluster_that_is_hardly_ever_ready_is_no_success() -> None:
    healthy = Count(HEALTHY, "single,network", runs=20, once=1, ready=19)
    assert not healthy.is_wrong and replace(healthy, ready=0).is_wrong and replace(healthy, others=1).is_wrong
    bad = Count("slow disk", "single", runs=10, found=10)
    assert not bad.is_wrong and replace(bad, found=9).is_wrong and replace(bad, ready=1).is_wrong


def test_the_next_run_is_of_the_fault_with_the_least_done_that_fits_into_the_time() -> None:
    counts = [Count("a", "single", runs=3, seconds=60), Count("b", "single", runs=2, seconds=90)]
    assert following(counts, 1000) is counts[1]
    assert following(counts, 80) is counts[0]
    assert following(counts, 10) is None
    counts[1].runs = counts[1].of
    assert following(counts, 1000) is counts[0]
    fresh = Count("c", "network")
    assert following([*counts, fresh], FIRST_S) is fresh and following([fresh], FIRST_S - 1) is None


def test_two_faults_that_leave_each_other_alone_share_a_run_until_one_is_at_its_end(tmp_path: Path) -> None:
    counts = read(tmp_path / "counts.csv")
    by_name = {count.fault: count for count in counts}
    disk, cpu = by_name["slow disk"], by_name["stolen CPU"]
    assert together(disk, counts) == [disk, cpu] and together(cpu, counts) == [cpu, disk]
    for name in ("limited link", "lossy link", HEALTHY):
        assert together(by_name[name], counts) == [by_name[name]]
    cpu.runs = cpu.of
    assert together(disk, counts) == [disk]
