"""One process of a node decodes a file of samples, all read it; the space is bounded and free again at the end."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT
from training.benchmarks.driver.launch.scratch import SCRATCH_ENV, scratch_folder
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.hdf5 import KEPT, Shards, SharedShards

ROWS = 50


class _Decoding(Shards):
    """Files whose decoding leaves a line in a file beside them."""

    def load(self, path: Path) -> dict[str, Any]:
        with path.with_name("decoded").open("a") as log:
            log.write(f"{path.name} {os.getpid()}\n")
        time.sleep(0.2)  # for others that ask meanwhile
        first = int(path.name)
        return {"a": np.arange(first, first + ROWS, dtype=np.int16), "b": np.ones((ROWS, 3), dtype=np.int32)}


def _files(folder: Path, count: int) -> list[Path]:
    paths = [folder / str(number) for number in range(count)]
    for path in paths:
        path.write_text("x")
    return paths


def _decoded(folder: Path) -> list[str]:
    return [line.split()[0] for line in (folder / "decoded").read_text().splitlines()]


def _rank(paths: list[Path], start: Any, results: Any) -> None:
    start.wait()
    shards = _Decoding(paths, [ROWS] * len(paths))
    rows = shards.rows(list(range(0, ROWS * len(paths), 7)))
    results.put([int(content["a"][row]) for content, row in rows])


def test_ranks_that_ask_at_once_decode_each_file_once(tmp_path: Path) -> None:
    paths = _files(tmp_path, 3)
    context = multiprocessing.get_context("fork")
    with scratch_folder():
        start, results = context.Event(), context.Queue()
        ranks = [context.Process(target=_rank, args=(paths, start, results)) for _ in range(6)]
        for rank in ranks:
            rank.start()
        start.set()
        found = [results.get(timeout=200) for _ in ranks]
        for rank in ranks:
            rank.join()
    expected = [number % ROWS + number // ROWS for number in range(0, ROWS * 3, 7)]
    assert found == [expected] * 6
    assert sorted(_decoded(tmp_path)) == ["0", "1", "2"]


def test_a_rank_alone_reads_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SCRATCH_ENV, raising=False)
    shards = _Decoding(_files(tmp_path, 1), [ROWS])
    assert not isinstance(shards.rows([3])[0][0]["a"], np.memmap)
    assert SharedShards.of({SCRATCH_ENV: str(tmp_path / "gone")}) is None
    assert SharedShards.of({SCRATCH_ENV: str(tmp_path), "LOCAL_WORLD_SIZE": "1"}) is None
    assert SharedShards.of({SCRATCH_ENV: str(tmp_path), "LOCAL_WORLD_SIZE": "2"}) is not None


def test_what_is_mapped_is_what_was_decoded_and_cannot_be_written(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    arrays = {"a": np.arange(6, dtype=np.int8).reshape(2, 3), "labels": np.array([7, 8])}
    shards = SharedShards(tmp_path / "shards")
    for _ in range(2):
        found = shards.get(path, lambda _: dict(arrays))
        assert found.keys() == arrays.keys()
        assert all(np.array_equal(found[key], arrays[key]) and found[key].dtype == arrays[key].dtype for key in arrays)
        assert isinstance(found["a"], np.memmap) and not found["a"].flags.writeable


def test_a_file_that_has_changed_is_decoded_again(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    shards = SharedShards(tmp_path / "shards")
    shards.get(path, lambda _: {"a": np.zeros(2)})
    path.write_text("longer")
    assert shards.get(path, lambda _: {"a": np.ones(2)})["a"].tolist() == [1, 1]


def test_few_files_stay_and_who_reads_one_that_leaves_keeps_it(tmp_path: Path) -> None:
    paths = _files(tmp_path, KEPT + 3)
    shards = SharedShards(tmp_path / "shards")
    found = []
    for number, path in enumerate(paths):
        found.append(shards.get(path, lambda _, number=number: {"a": np.full(5000, number)}))  # type: ignore[misc]
        os.utime(tmp_path, (number, number))
    assert len([path for path in (tmp_path / "shards").iterdir() if path.is_dir()]) == KEPT
    assert [int(arrays["a"].sum()) // 5000 for arrays in found] == list(range(KEPT + 3))


def test_without_space_every_rank_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = _files(tmp_path, 1)
    shards = SharedShards(tmp_path / "shards")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 0, 100))
    assert not isinstance(shards.get(path, lambda _: {"a": np.zeros(40)})["a"], np.memmap)
    monkeypatch.undo()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert not isinstance(shards.get(path, lambda _: {"a": np.zeros(40)})["a"], np.memmap)
    assert [each.suffix for each in (tmp_path / "shards").iterdir()] == [".lock"]


def test_a_broken_file_is_every_ranks_error_and_leaves_nothing(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    shards = SharedShards(tmp_path / "shards")

    def broken(path: Path) -> dict[str, Any]:
        raise DataError(path, "broken")

    for _ in range(2):
        with pytest.raises(DataError, match="broken"):
            shards.get(path, broken)
    assert shards.get(path, lambda _: {"a": np.zeros(1)})["a"].tolist() == [0]


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from training.benchmarks.driver.training.data.hdf5 import SharedShards

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[1] == "writes":
    np.save = killed
folder = Path(sys.argv[2])
SharedShards(folder / "shards").get(folder / "0", lambda _: {"a": np.zeros(3)})
"""


def test_a_rank_that_is_killed_while_it_writes_holds_up_nobody(tmp_path: Path) -> None:
    (path,) = _files(tmp_path, 1)
    done = subprocess.run([sys.executable, "-c", KILLED, "writes", str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [each.suffix for each in (tmp_path / "shards").iterdir() if each.is_dir()] == [".partial"]
    found = SharedShards(tmp_path / "shards").get(path, lambda _: {"a": np.ones(3)})
    assert isinstance(found["a"], np.memmap) and found["a"].tolist() == [1, 1, 1]
    assert [each.suffix for each in (tmp_path / "shards").iterdir() if each.is_dir()] == [""]


def test_the_folder_of_a_launch_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), scratch_folder() as folder:
        (folder / "shards").mkdir()
        (folder / "shards" / "a.npy").write_bytes(b"x" * 10)
        assert os.environ[SCRATCH_ENV] == str(folder)
        with scratch_folder() as other:
            assert folder.is_dir() and other.is_dir(), "a living launch keeps its folder"
        raise KeyboardInterrupt
    assert SCRATCH_ENV not in os.environ
    assert [*tmp_path.iterdir()] == []


def test_the_folder_of_a_launch_that_was_killed_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import os, signal\nfrom training.benchmarks.driver.launch.scratch import scratch_folder\n"
        "with scratch_folder() as folder:\n    (folder / 'shards').mkdir()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=False)
    (abandoned,) = tmp_path.iterdir()
    assert (abandoned / "shards").is_dir()
    (tmp_path / "clusterdyno-of-others").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch_folder():
        assert not abandoned.exists()
        assert (tmp_path / "clusterdyno-of-others").is_dir()
