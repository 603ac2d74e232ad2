"""The limits of a collection: its bytes, its files, what it says of them, and the memory of many at once."""

import os
import tracemalloc
from pathlib import Path

import pytest

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.transfer import pull

SECONDS = 60.0


def test_beyond_the_limit_the_small_files_have_come_and_the_rest_is_named(host: Host, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    (there / "a large one").write_bytes(os.urandom(5 << 20))
    (there / "larger").write_bytes(b"x" * (65 << 20))
    (there / "node_exit.json").write_text("{}")
    said: list[str] = []
    limits = CollectLimits(max_bytes=6 << 20)
    pulled = pull(host, str(there), here, deadline=SECONDS, limits=limits, warn=said.append)
    assert pulled.incomplete and pulled.files.keys() == {"a large one", "larger", "node_exit.json"}
    assert (here / "larger").stat().st_size == (1 << 20) - 2
    assert said == [f"{host.name}: there is more than MAX_COLLECT_BYTES (6 MiB); of larger the beginning is kept"]


def test_a_terabyte_of_holes_is_not_read_to_be_summed(host: Host, tmp_path: Path) -> None:
    """The host's own sha256sum of it would take longer than the whole collection may."""
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    (there / "node_exit.json").write_text("{}")
    for name in ("core.1", "core.2"):
        with (there / name).open("wb") as file:
            file.truncate(1 << 40)
    said: list[str] = []
    limits = CollectLimits(max_bytes=1 << 20)
    pulled = pull(host, str(there), here, deadline=SECONDS, limits=limits, warn=said.append)
    assert pulled.incomplete and len(pulled.files) == 2 and "node_exit.json" in pulled.files
    (sentence,) = said
    assert "MAX_COLLECT_BYTES (1 MiB)" in sentence and "core.1" in sentence and "core.2" in sentence


def test_more_files_than_the_limit_are_named_and_the_others_kept(host: Host, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for number in range(60):
        (there / f"f{number}").write_text("x")
    said: list[str] = []
    pulled = pull(host, str(there), here, deadline=SECONDS, limits=CollectLimits(max_files=10), warn=said.append)
    assert pulled.incomplete and len(pulled.files) == 10 == len([*here.iterdir()])
    assert len(said) == 1 and "MAX_COLLECT_FILES (10); not brought: " in said[0] and said[0].endswith(" and 30 more")


def test_many_that_are_left_out_are_counted(host: Host, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for number in range(100):
        (tmp_path / "there" / f"link{number}").symlink_to("x")
    said: list[str] = []
    pull(host, str(tmp_path / "there"), tmp_path / "here", deadline=SECONDS, warn=said.append)
    assert len(said) == 21 and said[-1] == f"{host.name}: 80 more are left out"


def test_64_collections_at_once_need_neither_the_temporary_folder_nor_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 MB each, where a spool of 16 MB in memory or more in TMPDIR was made for each."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "log").write_bytes(b"x" * (4 << 20))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no such folder"))
    tracemalloc.start()
    try:
        results = for_each(
            {f"node{n}": n for n in range(64)},
            lambda n: pull(LocalHost(f"node{n}"), str(there), tmp_path / "here" / f"node{n}", deadline=SECONDS),
        ).raise_first()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(results) == 64 and peak < 64 << 20
