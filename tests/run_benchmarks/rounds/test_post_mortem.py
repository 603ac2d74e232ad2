"""What a host tells of its disk and its boot after a round broke, on this machine and as df words it elsewhere."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.circumstance import CircumstanceKind
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.boot import boot_in
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.rounds.post_mortem import examine
from run_benchmarks.state.context import RunningNode
from tests.run_benchmarks.results.rounds import node_plan


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of ten inodes and four megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=10", "tmpfs", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def found(folder: Path, boot_id: str = "") -> dict[CircumstanceKind, str]:
    plan = node_plan("localhost", 0, (0,)).model_copy(update={"log_dir_host": str(folder)})
    outcome = NodeOutcome(node=plan, folder=folder)
    node = RunningNode(plan=plan, host=LocalHost("localhost"), outcome=outcome, boot_id=boot_id)
    examine({"localhost": node})
    return {each.kind: each.words for each in node.outcome.circumstances}


def test_a_full_disk_is_told_from_one_with_room(mounted: Path) -> None:
    assert found(mounted) == {}
    (mounted / "fill").write_bytes(b"x" * (3 << 20) + b"x" * 600_000)
    free = os.statvfs(mounted).f_bavail * os.statvfs(mounted).f_frsize
    words = f"the disk is full: {free} bytes are free on {mounted}, which holds {mounted}"
    assert found(mounted) == {CircumstanceKind.DISK: words}


def test_a_disk_without_inodes_is_full(mounted: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        for number in range(20):
            (mounted / str(number)).touch()
    assert found(mounted)[CircumstanceKind.DISK].startswith(f"the disk is full: no inode is free on {mounted}")


def test_another_boot_is_told_and_the_same_is_not(tmp_path: Path) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert CircumstanceKind.REBOOT not in found(tmp_path, boot_id)
    assert CircumstanceKind.REBOOT in found(tmp_path, "0f4b9f4e-0d64-4c55-9c43-1b1ab8f4a2d1")


@pytest.mark.parametrize("said", ["boot " + "0" * 1_000_000, "boot", "boot \x1b[31m", "reboot"])
def test_what_is_no_id_of_a_boot_is_none(said: str) -> None:
    """It stands in the journal: a host's answer of megabytes would end every resume."""
    own = "0f4b9f4e-0d64-4c55-9c43-1b1ab8f4a2d1"
    assert boot_in([said]) == "" and boot_in([said, f"boot {own}"]) == own
