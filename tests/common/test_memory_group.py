"""The control group's counter of what the kernel ended for lack of memory, in both versions of control groups."""

from pathlib import Path

import pytest

from common.memory_group import MemoryGroup, own_group

UNLIMITED = str((1 << 63) - 4096)  # what version 1 shows where no limit is set


def file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("inside", ["", "some/where"], ids=["in a container", "on a host"])
@pytest.mark.parametrize(
    ("membership", "folder", "counter", "limit"),
    [
        ("0::/some/where\n", "", "memory.events", "memory.max"),
        (
            "5:cpu:/x\n4:memory:/some/where\n0::/\n",
            "memory",
            "memory.oom_control",
            "memory.limit_in_bytes",
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_the_group_of_this_process(
    tmp_path: Path, membership: str, folder: str, counter: str, limit: str, inside: str
) -> None:
    member = file(tmp_path / "cgroup", membership)
    place = tmp_path / "mount" / folder / inside
    file(place / counter, "low 0\noom_kill_disable 0\nunder_oom 0\noom_kill 3\noom_group_kill 9\n")
    file(place / limit, "1048576\n")
    group = own_group(member, tmp_path / "mount")
    assert group is not None
    assert (group.kills(), group.limit()) == (3, 1048576)


@pytest.mark.parametrize("text", ["max\n", UNLIMITED])
def test_no_limit(tmp_path: Path, text: str) -> None:
    group = MemoryGroup(counter=tmp_path / "none", limit_file=file(tmp_path / "limit", text))
    assert (group.kills(), group.limit()) == (0, None)


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    assert own_group(tmp_path / "none", tmp_path) is None
    assert own_group(file(tmp_path / "cgroup", "0::/\n5:cpu:/x\n"), tmp_path) is None
    gone = MemoryGroup(counter=tmp_path / "none", limit_file=tmp_path / "none")
    assert (gone.kills(), gone.limit()) == (0, None)
