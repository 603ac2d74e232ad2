"""A tree of processes is found without a look at any other, and waited for whatever the kernel offers."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from training.benchmarks.driver.launch.process_tree import (
    descendants,
    is_running,
    kill_below,
    start_ticks,
    wait_until_gone,
)

# Adopts what its tree loses: a child, a grandchild that left its session, one whose parent has ended.
TREE = """
import os, signal, subprocess, sys, time
from training.benchmarks.driver.launch.process_tree import become_reaper
become_reaper()
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600"])
if os.fork() == 0:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    os._exit(0)
os.wait()
print("ready", flush=True)
signal.pause()
"""
# pid: parent. 10 and what comes of it are the tree, the others belong to the host.
HOST = {1: 0, 2: 1, 10: 1, 11: 10, 12: 11, 13: 11, 20: 2, 21: 20, 22: 1}
OURS = {10, 11, 12, 13}


@pytest.fixture
def tree() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process.pid
        kill_below(process.pid)
        process.kill()


def wait_for(count: int, pid: int) -> list[int]:
    limit = time.monotonic() + 10
    while len(found := descendants(pid)) != count and time.monotonic() < limit:
        time.sleep(0.02)
    return found


def test_all_of_a_tree_is_found_and_killed(tree: int) -> None:
    limit = time.monotonic() + 10
    while len(sessions := {os.getsid(pid) for pid in wait_for(5, tree)}) != 3 and time.monotonic() < limit:
        time.sleep(0.02)  # setsid is there before it has made its session
    assert len(descendants(tree)) == 5 and len(sessions) == 3
    kill_below(tree)
    limit = time.monotonic() + 10
    while any(is_running(pid, start_ticks(pid)) for pid in descendants(tree)) and time.monotonic() < limit:
        time.sleep(0.02)
    assert [pid for pid in descendants(tree) if is_running(pid, start_ticks(pid))] == []


def host(folder: Path, *, lists_children: bool) -> Path:
    """A /proc of HOST's processes, each of two threads, the second of which has its children."""
    for pid, parent in HOST.items():
        for task in (pid, pid + 1000):
            (folder / f"{pid}/task/{task}").mkdir(parents=True)
            children = [child for child, of in HOST.items() if of == pid and task != pid]
            if lists_children:
                (folder / f"{pid}/task/{task}/children").write_text(" ".join(map(str, children)) + " ")
        (folder / f"{pid}/stat").write_text(f"{pid} (a ) name) S {parent} 0 0\n")
    (folder / "thread-self").mkdir()
    if lists_children:
        (folder / "thread-self/children").touch()
    return folder


def test_no_other_process_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = host(tmp_path, lists_children=True)
    looked_at: list[str] = []
    iterdir, read_text = Path.iterdir, Path.read_text

    def note(path: Path) -> Path:
        looked_at.append(path.relative_to(proc).parts[0])
        return path

    monkeypatch.setattr(Path, "iterdir", lambda path: iterdir(note(path)))
    monkeypatch.setattr(Path, "read_text", lambda path, **options: read_text(note(path), **options))
    assert descendants(10, proc) == [11, 12, 13]
    assert set(looked_at) == {str(pid) for pid in OURS}


def test_a_kernel_without_lists_of_children_gives_the_same_tree(tmp_path: Path) -> None:
    assert sorted(descendants(10, host(tmp_path, lists_children=False))) == [11, 12, 13]


def test_a_process_that_is_gone_has_none_below_it(tmp_path: Path) -> None:
    assert descendants(99, host(tmp_path, lists_children=True)) == []


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_the_end_of_a_process_is_waited_for(has_pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_pidfd:

        def refuse(_pid: int) -> int:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    with subprocess.Popen(["sleep", "600"]) as process:
        ticks = start_ticks(process.pid)
        assert not wait_until_gone(process.pid, ticks, 0.1)
        assert wait_until_gone(process.pid, ticks + 1, 60), "another process of that number is none"
        process.kill()
        assert wait_until_gone(process.pid, ticks, 60), "a zombie has ended"
    assert wait_until_gone(process.pid, ticks, 60)
