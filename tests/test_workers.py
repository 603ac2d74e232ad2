"""Files with hosts run on few workers, beside others that compute, and wait on none for what hosts are made of."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from xdist.remote import Producer

from tests.beside import Images
from tests.workers import Scheduler, Workers, has_hosts, import_first, share

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


def test_each_file_is_imported_first_by_one_worker() -> None:
    files = [Path(f"test_{number}.py") for number in range(10)]
    shares = [share(files, number, 4) for number in range(4)]
    assert [file for each in shares for file in each] == files
    assert {len(each) for each in shares} == {2, 3}


def test_a_file_that_cannot_be_imported_keeps_none_of_the_others_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "fails": "1 / 0",
        "leaves": "raise SystemExit",
        "skips": "import pytest; pytest.skip(allow_module_level=True)",
    }
    for name, text in {**texts, "works": ""}.items():
        (tmp_path / f"test_first_{name}.py").write_text(text)
    names = [f"test_first_{name}" for name in (*texts, "works")]
    import_first([tmp_path / f"{name}.py" for name in names], tmp_path)
    assert [name for name in names if sys.modules.pop(name, None)] == ["test_first_works"]


def test_a_worker_begins_with_its_share_of_what_is_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the session ignores; the process that gives the files out imports none."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("tests.workers.ROOT", tmp_path)
    names = [f"test_share_{number}" for number in range(5)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart/test_share_apart.py").write_text("")
    ignored = ("apart", names[0])
    hook = SimpleNamespace(pytest_ignore_collect=lambda collection_path, config: collection_path.stem in ignored)
    config = SimpleNamespace(hook=hook, args=[str(tmp_path)], invocation_params=SimpleNamespace(dir=Path.cwd()))
    session = cast(pytest.Session, SimpleNamespace(config=config))
    Workers(None).pytest_collection(session)
    assert not sys.modules.keys() & set(names)
    config.workerinput = {"workerid": "gw1", "workercount": 2}
    Workers(None).pytest_collection(session)
    assert [name for name in names if sys.modules.pop(name, None)] == names[3:]
