"""Files with hosts run on few workers, beside others that compute, and wait on none for what hosts are made of."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from xdist.remote import Producer

from tests.beside import Images
from tests.workers import Scheduler, has_hosts

HOSTS = "import pytest\n\npytestmark = pytest.mark.cluster\n"


class Node:
    """A worker that is told to run tests and runs them when the test says so."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.waiting: list[int] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.waiting += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Session:
    """A session of four workers with so many files of one test each, those with hosts first."""

    def __init__(self, folder: Path, with_hosts: int, without: int, images: Images | None = None) -> None:
        files = [f"test_h{number}.py" for number in range(with_hosts)]
        for name in files:
            (folder / name).write_text(HOSTS)
        for number in range(without):
            files.append(f"test_o{number}.py")
            (folder / files[-1]).write_text("")
        self._ids = [f"{name}::test_it" for name in files]
        config = SimpleNamespace(getvalue=lambda _: ["4*popen"], option=SimpleNamespace(loadscopereorder=False))
        self._scheduler = Scheduler(cast(pytest.Config, config), Producer("test", enabled=False), images, folder)
        self.nodes = [Node(number) for number in range(4)]
        for node in self.nodes:
            self._scheduler.add_node(node)
            self._scheduler.add_node_collection(node, self._ids)
        self._scheduler.schedule()

    def files(self, number: int) -> str:
        """Kinds of the files that a worker has been given and not run yet: h with hosts, o without."""
        return "".join(self._ids[index].removeprefix("test_")[0] for index in self.nodes[number].waiting)

    def run(self, number: int) -> None:
        """Let a worker run the next of its tests."""
        self._scheduler.mark_test_complete(self.nodes[number], self.nodes[number].waiting.pop(0))


def test_two_workers_of_four_have_hosts_and_two_have_not(tmp_path: Path) -> None:
    session = Session(tmp_path, with_hosts=8, without=8)
    assert [session.files(number) for number in range(4)] == ["hh", "hh", "oo", "oo"]
    session.run(3)
    session.run(0)
    assert (session.files(3), session.files(0)) == ("oo", "hh")


@pytest.mark.parametrize(("with_hosts", "without"), [(4, 12), (12, 1)])
def test_a_worker_whose_kind_is_used_up_helps_the_others(tmp_path: Path, with_hosts: int, without: int) -> None:
    session = Session(tmp_path, with_hosts, without)
    given = [session.files(number) for number in range(4)]
    assert "o" in given[2] if without > with_hosts else "h" in given[3]
    while any(node.waiting for node in session.nodes):
        for number, node in enumerate(session.nodes):
            if node.waiting:
                session.run(number)
    assert all(node.shutting_down for node in session.nodes), "each file was run"


def test_no_worker_has_hosts_while_what_they_are_made_of_is_being_made(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(str(os.getpid()))
    session = Session(tmp_path, with_hosts=3, without=30, images=Images(tmp_path))
    assert [session.files(number) for number in range(4)] == ["oo"] * 4
    (tmp_path / "code").write_text("0")
    for number in range(4):
        session.run(number)
    assert [session.files(number) for number in range(4)] == ["oh"] * 2 + ["oo"] * 2


def test_files_with_hosts_are_known_by_their_marker() -> None:
    root = Path(__file__).parent
    assert has_hosts(root / "cluster/test_run.py") and has_hosts(root / "container/test_distribute.py")
    assert not has_hosts(root / "test_imports.py") and not has_hosts(Path(__file__))
