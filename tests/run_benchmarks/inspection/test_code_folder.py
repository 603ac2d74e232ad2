"""The code's folder on a host: every kind of difference is found and named, and put right without a gap."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from common.shortening import few
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.transfer import push
from run_benchmarks.inspection.code_folder import NAMED, bring, compare, in_words
from run_benchmarks.plan.code_bundle import CodeBundle, bundle, manifest_digest

HOST = LocalHost("localhost")
NAME = "training/benchmarks/units.py"
SECONDS = 30.0


@pytest.fixture
def code(tmp_path: Path) -> CodeBundle:
    root = tmp_path / "repository"
    for name, text in ((NAME, "GB = 1e9\n"), ("training/empty.py", ""), ("vendors/a b'c/ü.json", "{}")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return bundle(root, ("result", "mnt", "mnt/data"))


@pytest.fixture
def folder(code: CodeBundle, tmp_path: Path) -> Path:
    """The code as it is on a host."""
    path = tmp_path / "host" / "code" / code.digest
    bring(HOST, code, str(path), deadline=SECONDS)
    return path


def edit(folder: Path) -> None:
    status = (folder / NAME).stat()
    (folder / NAME).write_text("GB = 1e6\n")  # of the same size and, so to say, never touched
    os.utime(folder / NAME, ns=(status.st_atime_ns, status.st_mtime_ns))


def smuggle(folder: Path) -> None:
    cache = folder / "training" / "benchmarks" / "__pycache__"
    cache.mkdir()
    (cache / "units.cpython-311.pyc").write_bytes(b"compiled")


def link(folder: Path) -> None:
    (folder / NAME).rename(folder.parent / "elsewhere.py")
    (folder / NAME).symlink_to(folder.parent / "elsewhere.py")


def bloat(folder: Path) -> None:
    with (folder / "training" / "huge.py").open("wb") as file:
        file.truncate(65 << 20)


def test_the_real_code_is_found_equal(tmp_path: Path) -> None:
    code = bundle(ROOT)
    path = tmp_path / code.digest
    bring(HOST, code, str(path), deadline=SECONDS)
    assert compare(HOST, code, str(path)) == []
    assert manifest_digest(code.manifest) == code.digest and len(code.manifest.splitlines()) > 100


def test_what_is_right_is_left_alone(code: CodeBundle, folder: Path) -> None:
    assert compare(HOST, code, str(folder)) == []
    before = folder.readlink()
    bring(HOST, code, str(folder), deadline=SECONDS)
    assert folder.readlink() == before and sorted(folder.parent.iterdir()) == sorted([folder, folder.resolve()])
    assert (folder / "mnt" / "data").is_dir() and (folder / "result").is_dir()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (edit, [f"changed: {NAME}"]),
        (smuggle, ["added: training/benchmarks/__pycache__/units.cpython-311.pyc"]),
        (link, [f"changed: {NAME}"]),
        (bloat, ["added: training/huge.py"]),
        (lambda folder: (folder / "training" / "empty.py").unlink(), ["missing: training/empty.py"]),
        (lambda folder: (folder / "mnt" / "data").rmdir(), ["added: mnt", "missing: mnt/data"]),
        (lambda folder: (folder / "added\x1b[2J.py").touch(), ["added: added?[2J.py"]),
    ],
    ids=["edited", "smuggled", "linked", "bloated", "removed", "no mount point", "an odd name"],
)
def test_a_difference_is_named_and_put_right(
    change: Callable[[Path], None], expected: list[str], code: CodeBundle, folder: Path
) -> None:
    change(folder)
    assert compare(HOST, code, str(folder)) == expected
    bring(HOST, code, str(folder), deadline=SECONDS)
    assert compare(HOST, code, str(folder)) == []
    assert (folder / NAME).read_text() == "GB = 1e9\n"


def test_a_folder_that_is_none(code: CodeBundle, folder: Path) -> None:
    """Gone, a dangling link, and a plain folder as earlier versions made it."""
    everything = {
        f"missing: {name}" for name in (NAME, "training/empty.py", "vendors/a b'c/ü.json", "mnt/data", "result")
    }
    shutil.rmtree(folder.resolve())
    assert set(compare(HOST, code, str(folder))) == everything
    bring(HOST, code, str(folder), deadline=SECONDS)
    assert compare(HOST, code, str(folder)) == []
    folder.unlink()
    push(HOST, code.open(), str(folder), deadline=SECONDS)
    assert folder.is_dir() and not folder.is_symlink() and compare(HOST, code, str(folder)) == []
    edit(folder)
    bring(HOST, code, str(folder), deadline=SECONDS)
    assert compare(HOST, code, str(folder)) == []


def test_another_run_that_uses_the_folder_goes_on(code: CodeBundle, folder: Path) -> None:
    """It keeps what it has mounted; who goes by the path finds the code at every moment."""
    mounted = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    gaps: list[OSError] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            try:
                (folder / NAME).read_text()
            except OSError as error:
                gaps.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(5):
            edit(folder)
            bring(HOST, code, str(folder), deadline=SECONDS)
    finally:
        over.set()
        watcher.join()
    assert gaps == []
    assert sorted(entry.name for entry in os.scandir(mounted)) == ["mnt", "result", "training", "vendors"]
    os.close(mounted)


def test_what_was_replaced_goes_after_a_week(code: CodeBundle, folder: Path) -> None:
    first = folder.resolve()
    edit(folder)
    bring(HOST, code, str(folder), deadline=SECONDS)
    second = folder.resolve()
    assert first.is_dir() and second != first
    other = folder.parent / "0123456789abcdef.other"
    other.mkdir()
    for old in (first, second, other):
        os.utime(old, (1, 1))
    edit(folder)
    bring(HOST, code, str(folder), deadline=SECONDS)
    assert not first.exists() and second.is_dir() and other.is_dir()


def test_many_at_once_end_with_the_code(code: CodeBundle, folder: Path) -> None:
    """As hosts that share a home do."""
    edit(folder)
    failed: list[BaseException] = []

    def put_right() -> None:
        try:
            bring(HOST, code, str(folder), deadline=SECONDS)
        except HostError as error:
            failed.append(error)

    threads = [threading.Thread(target=put_right) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and compare(HOST, code, str(folder)) == []


def test_old_folders_that_cannot_be_looked_at_are_no_failure(
    code: CodeBundle, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host of a shared home removes its link between find's listing and its look at it: find exits with 1."""
    real = shutil.which("find")
    wrapper = tmp_path / "bin" / "find"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\n"{real}" "$@"\ncase "$*" in *-mtime*) echo gone >&2; exit 1 ;; esac\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    edit(folder)
    bring(HOST, code, str(folder), deadline=SECONDS)
    assert compare(HOST, code, str(folder)) == []


def test_what_arrives_broken_is_not_used(code: CodeBundle, folder: Path, tmp_path: Path) -> None:
    edit(folder)
    broken = CodeBundle(code.digest, bundle(tmp_path).archive, code.manifest)
    with pytest.raises(HostError, match="differs from what was sent"):
        bring(HOST, broken, str(folder), deadline=SECONDS)
    assert folder.is_dir() and sorted(folder.parent.iterdir()) == sorted([folder, folder.resolve()])


def test_many_differences_are_told_shortly() -> None:
    found = [f"added: {number}" for number in range(7)]
    assert few(found, NAMED) == "added: 0, added: 1, added: 2, added: 3, added: 4 and 2 more"
    assert in_words("node1", found[:1]) == "node1: its code differed from that of this run and was replaced: added: 0"
