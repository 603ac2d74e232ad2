"""The counts of acceptances on hosts: what a run adds, that the next call goes on, and which run comes next."""

from __future__ import annotations

from pathlib import Path

from tests.performance.acceptance import FIRST_S, HEALTHY, Count, following, read, together, write


def test_a_call_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    file = tmp_path / "counts.csv"
    counts = read(file)
    assert {count.runs for count in counts} == {0} and counts[-1].fault == HEALTHY
    counts[0].add("n1", {"n1", "n3"}, {"n1": ["disk_read 1 GB/s"], "n3": ["device 0: matmul"]}, set(), 100)
    counts[0].add("n2", {"n2", "n3"}, {"n1": ["disk_read 1 GB/s"], "n2": ["device 0: matmul"]}, {"n2"}, 200)
    counts[-1].add(None, set(), {}, set(), 300)
    assert (counts[0].found, counts[0].others, counts[0].once, counts[0].seconds) == (1, 1, 1, 150)
    assert (counts[-1].found, counts[-1].others) == (0, 0)
    write(file, counts)
    assert read(file) == counts


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
