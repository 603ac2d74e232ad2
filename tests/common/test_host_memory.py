"""What a host tells of its memory and its NUMA nodes, and the pinning of a thread to one of them."""

import os
from pathlib import Path

import pytest

from common import host_memory
from common.host_memory import available_bytes, total_bytes
from common.memory_group import MemoryGroup
from training.benchmarks.driver.launch.numa_nodes import numa_nodes, pinned_to, processors


def test_memory_is_the_kernels_and_no_more_than_the_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    600 kB\n")
    monkeypatch.setattr(host_memory, "own_group", lambda: None)
    assert (total_bytes(meminfo), available_bytes(meminfo)) == (1000 * 1024, 600 * 1024)
    (tmp_path / "limit").write_text("700000\n")
    group = MemoryGroup(counter=tmp_path / "none", limit_file=tmp_path / "limit")
    monkeypatch.setattr(host_memory, "own_group", lambda: group)
    assert (total_bytes(meminfo), available_bytes(meminfo)) == (700_000, 600 * 1024)
    meminfo.write_text("MemTotal: many kB\n")
    assert total_bytes(meminfo) is None and available_bytes(meminfo) is None


def test_the_nodes_with_processors_are_found(tmp_path: Path) -> None:
    for name, cpus in (
        ("node0", "0-1,4\n"),
        ("node10", "2-3\n"),
        ("node2", "\n"),
        ("node3", "x\n"),
        ("has_cpu", "0\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cpus)
    assert numa_nodes(tmp_path) == {0: frozenset({0, 1, 4}), 10: frozenset({2, 3})}
    assert numa_nodes(tmp_path / "none") == {0: frozenset(os.sched_getaffinity(0))}
    assert processors("") == frozenset()


def test_a_thread_is_pinned_and_released() -> None:
    before = os.sched_getaffinity(0)
    one = frozenset({min(before)})
    with pinned_to(one) as is_there:
        assert is_there and os.sched_getaffinity(0) == one
    assert os.sched_getaffinity(0) == before
    with pinned_to(frozenset({100_000})) as is_there:
        assert not is_there and os.sched_getaffinity(0) == before
    with pinned_to(frozenset()) as is_there:
        assert not is_there
