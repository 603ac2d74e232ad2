"""A hostile archive writes nothing outside its folder, and costs neither memory nor disk beyond the limits."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.hosts.incoming import limits
from run_benchmarks.hosts.incoming.limits import CollectLimits, EnoughError
from run_benchmarks.hosts.incoming.reception import Reception, Staging
from run_benchmarks.hosts.incoming.tar_stream import ArchiveError, TarStream
from tests.run_benchmarks.hosts.archives import Entry, archive, entry, header, snapshot, unpack

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
LONG = "/".join(["d" * 60] * 3) + "/file"  # longer than a header's field of 100 bytes


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "flag").write_text("ours")
    return folder


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("step", [1, 511, 512, 513, 100_000])
def test_files_of_every_format_cut_anywhere(tmp_path: Path, form: int, step: int) -> None:
    contents = {"a": b"", "b/c": b"x" * 512, "b/d": b"y" * 513, LONG: b"long", "./e//f": b"e", "ünï": b"u"}
    entries: list[Entry] = [
        entry("b", tarfile.DIRTYPE),
        *(entry(name, content=data) for name, data in contents.items()),
    ]
    staging, trouble = unpack(archive(entries, form), tmp_path / "here", step=step)
    assert trouble is None and staging.left_out == {}
    expected = {name.replace("./", "").replace("//", "/"): data for name, data in contents.items()}
    assert staging.digests == {name: hashlib.sha256(data).hexdigest() for name, data in expected.items()}
    assert {name: (tmp_path / "here" / name).read_bytes() for name in expected} == expected


def long_path_and_links(outside: Path) -> list[Entry]:
    """What the standard library's filter lets through (CVE-2025-4517): a path too long to be resolved."""
    entries, path, part = [], "", "d" * 247
    for letter in "abcdefghijklmnop":
        entries.append(entry(f"{path}{part}", tarfile.DIRTYPE))
        entries.append(entry(f"{path}{letter}", tarfile.SYMTYPE, part))
        path += f"{part}/"
    short = "/".join("abcdefghijklmnop")
    entries.append(entry(f"{short}/{'l' * 254}", tarfile.SYMTYPE, "../" * 16))
    entries.append(entry("escape", tarfile.SYMTYPE, f"{short}/{'l' * 254}/{'../' * 8}{str(outside).lstrip('/')}"))
    entries.append(entry("flag", tarfile.LNKTYPE, "escape/flag"))
    entries.append(entry("flag", content=b"overwritten"))
    entries.append(entry("escape/new", content=b"created"))
    return entries


def test_the_known_way_out_of_the_filter_leads_nowhere(tmp_path: Path, outside: Path) -> None:
    before = snapshot(outside)
    here = tmp_path / "here"
    staging, trouble = unpack(archive(long_path_and_links(outside)), here)
    assert trouble is None and snapshot(outside) == before
    assert staging.left_out["escape"] == "a symbolic link" and staging.left_out["a"] == "a symbolic link"
    assert (here / "flag").read_bytes() == b"overwritten" and (here / "flag").stat().st_nlink == 1
    assert not any(path.is_symlink() for path in here.rglob("*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "outside"]


def test_what_stands_in_the_destination_is_replaced_and_never_followed(tmp_path: Path, outside: Path) -> None:
    """A folder that became a file, a file that became a folder, links to a file, to a folder and to nothing."""
    here = tmp_path / "here"
    (here / "folder" / "deep").mkdir(parents=True)
    (here / "folder" / "deep" / "old").write_text("old")
    (here / "file").write_text("old")
    (here / "link").symlink_to(outside / "flag")
    (here / "linked").symlink_to(outside)
    (here / "dangling").symlink_to(outside / "not there")
    (here / "broken").symlink_to(outside / "not there")
    (here / "kept").write_text("kept")
    before = snapshot(outside)
    names = ["folder", "file/new", "link", "linked/flag", "dangling", "broken/new"]
    staging, trouble = unpack(archive(entry(name, content=b"new") for name in names), here)
    assert trouble is None and staging.left_out == {} and snapshot(outside) == before
    found = {str(path.relative_to(here)): path.read_text() for path in here.rglob("*") if path.is_file()}
    assert found == {**dict.fromkeys(names, "new"), "kept": "kept"}
    assert not any(path.is_symlink() for path in here.rglob("*"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/absolute", "absolute"),
        ("..", "leaves"),
        ("a/../../b", "leaves"),
        ("x" * 256, "longer"),
        ("/".join("x" * 200 for _ in range(6)), "longer"),
        ("/".join("x" * 33), "deeper"),
        ("not \udcff UTF-8", "UTF-8"),
        (".", "no name"),
    ],
)
@pytest.mark.parametrize("form", FORMATS[1:])
def test_a_name_that_no_file_of_ours_gets_is_left_out_and_the_rest_comes(
    tmp_path: Path, name: str, why: str, form: int
) -> None:
    data = archive([entry(name, content=b"x" * 600), entry("good", content=b"good")], form)
    staging, trouble = unpack(data, tmp_path / "here")
    assert trouble is None and [why in reason for reason in staging.left_out.values()] == [True]
    assert list(staging.digests) == ["good"] and [path.name for path in tmp_path.iterdir()] == ["here"]


def test_names_that_clash_are_left_out_and_the_first_stays(tmp_path: Path) -> None:
    entries = [entry("a", content=b"first"), entry("a", content=b"second"), entry("a/b", content=b"below a file")]
    entries += [entry("d/e", content=b"e"), entry("d", content=b"a folder's name")]
    staging, trouble = unpack(archive(entries), tmp_path / "here")
    assert trouble is None and staging.left_out.keys() == {"a", "a/b", "d"} and staging.digests.keys() == {"a", "d/e"}
    assert (tmp_path / "here" / "a").read_bytes() == b"first"


def test_modes_are_for_owner_and_group_alone(tmp_path: Path) -> None:
    entries = []
    for mode in (0o000, 0o600, 0o644, 0o666, 0o755, 0o4777, 0o2755):
        info, content = entry(f"{mode:o}")
        info.mode = mode
        entries.append((info, content))
    unpack(archive(entries), tmp_path / "here")
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "here").iterdir()}
    expected = {"0": 0o600, "600": 0o600, "644": 0o640, "666": 0o640, "755": 0o750, "4777": 0o750, "2755": 0o750}
    assert modes == expected


@pytest.mark.parametrize("options", [["--format=gnu"], ["--format=posix"], ["--format=posix", "--sparse-version=0.1"]])
def test_a_sparse_file_of_10_kilobytes_does_not_become_8_gigabytes(tmp_path: Path, options: list[str]) -> None:
    there = tmp_path / "there"
    there.mkdir()
    with (there / "sparse").open("wb") as file:
        for number in range(40):  # more pieces than the header's own map has room for
            file.seek(number * (200 << 20))
            file.write(b"x" * 4096)
        file.truncate(8 << 30)
    (there / "zzz").write_text("after it")
    argv = ["tar", "-S", *options, "--sort=name", "-cf", "-", "-C", str(there), "sparse", "zzz"]
    data = subprocess.run(argv, capture_output=True, check=True).stdout
    assert len(data) < 1 << 20
    staging, trouble = unpack(data, tmp_path / "here")
    assert trouble is None and list(staging.left_out.values()) == ["a sparse file"]
    assert list(staging.digests) == ["zzz"]


def test_bytes_beyond_the_limit_are_not_written(tmp_path: Path) -> None:
    data = archive([entry("a", content=b"a" * 700), entry("b", content=b"b" * 700), entry("c", content=b"c")])
    staging, trouble = unpack(data, tmp_path / "here", limits=CollectLimits(max_bytes=1000))
    assert isinstance(trouble, EnoughError) and "MAX_COLLECT_BYTES (1000 bytes)" in str(trouble)
    assert staging.cut == {"b"} and (tmp_path / "here" / "b").read_bytes() == b"b" * 300
    assert staging.digests["b"] == hashlib.sha256(b"b" * 300).hexdigest() and "c" not in staging.digests


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, b"?"])
def test_members_beyond_the_limit_end_it_whatever_they_are(tmp_path: Path, kind: bytes) -> None:
    data = archive(entry(f"n{number}", kind, "x") for number in range(20))
    staging, trouble = unpack(data, tmp_path / "here", limits=CollectLimits(max_files=10))
    assert isinstance(trouble, EnoughError) and "MAX_COLLECT_FILES (10)" in str(trouble)
    assert len(staging.digests) <= 10 and len(staging.left_out) <= 10


def test_a_stream_of_nothing_that_is_kept_ends_at_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding and members that are skipped are no bytes of a file: without a bound a host could send them for ever."""
    monkeypatch.setattr(limits, "OVERHEAD_BYTES", 1 << 20)
    allowed = CollectLimits(max_bytes=1 << 20, max_files=16)
    assert allowed.max_stream_bytes == (2 << 20) + 16 * 4096
    endless = {"padding": b"", "a device": header("x", b"?", 1 << 40)}
    for first in endless.values():
        with Reception(tmp_path / "here", allowed) as reception:
            reception.feed(first)
            for sent in range(len(first), 4 << 20, 1 << 16):
                reception.feed(bytes(1 << 16))
                assert (reception.enough is not None) == (sent + (1 << 16) > allowed.max_stream_bytes), sent
        assert "MAX_COLLECT_BYTES (1 MiB)" in str(reception.enough)


def test_folders_that_files_need_count_too(tmp_path: Path) -> None:
    data = archive(entry("/".join([f"{number}"] * 30), content=b"x") for number in range(10))
    staging, trouble = unpack(data, tmp_path / "here", limits=CollectLimits(max_files=50))
    assert isinstance(trouble, EnoughError) and len(staging.digests) == 1


BOMBS = {
    "a pax header of a terabyte": header("x", tarfile.XHDTYPE, 1 << 40),
    "a long name of a terabyte": header("x", tarfile.GNUTYPE_LONGNAME, 1 << 40),
    "a global header of a terabyte": header("x", tarfile.XGLTYPE, 1 << 40),
    "a device of a terabyte of an unknown kind": header("x", b"?", 1 << 40),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_header_that_claims_a_terabyte_takes_no_memory(tmp_path: Path, bomb: str) -> None:
    chunk = b"y" * (1 << 20)
    staging = Staging(tmp_path, CollectLimits())
    tracemalloc.start()
    try:
        stream = TarStream(staging)
        stream.feed(BOMBS[bomb])
        for _ in range(64):
            stream.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
        staging.close()


def test_names_of_a_megabyte_are_not_remembered(tmp_path: Path) -> None:
    """Each is within the bound of a header; of all members together they would be 20 GB."""
    staging = Staging(tmp_path, CollectLimits())
    tracemalloc.start()
    try:
        stream = TarStream(staging)
        for number in range(32):
            name = b"%06d" % number + b"n" * ((1 << 20) - 6)
            for kind in (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.REGTYPE):
                stream.feed(header("x", tarfile.GNUTYPE_LONGNAME, len(name)) + name + header("x", kind, 0))
        assert len(staging.left_out) == 32 and tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
        staging.close()


def test_a_chain_of_20000_extended_headers_is_no_recursion(tmp_path: Path) -> None:
    names = 20_000 * (header("x", tarfile.GNUTYPE_LONGNAME, 5) + b"name\0".ljust(512, b"\0"))
    staging, trouble = unpack(names + archive([entry("a", content=b"a")]), tmp_path / "here")
    assert trouble is None and list(staging.digests) == ["name"]


@pytest.mark.parametrize(
    "data",
    [
        b"no archive" * 100,
        header("x", tarfile.REGTYPE, 5)[:300],
        header("x", tarfile.REGTYPE, 5) + b"abc",
        header("x", tarfile.REGTYPE, -1),
        header("x", tarfile.XHDTYPE, 20) + b"999 path=x\n".ljust(512, b"\0"),
        header("x", tarfile.XHDTYPE, 20) + b"-3 path=x\n".ljust(512, b"\0"),
        header("x", tarfile.XHDTYPE, 20) + b"0 path=x\n".ljust(512, b"\0"),
        header("x", tarfile.XHDTYPE, 12) + b"12 size=-12\n".ljust(512, b"\0"),
        header("x", tarfile.XHDTYPE, 512) + b"1" * 512,
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    staging, trouble = unpack(data, tmp_path / "here")
    assert isinstance(trouble, ArchiveError) and staging.digests == {}
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


PARTS = st.sampled_from(["a", "b", "link", "..", ".", "", "x" * 255, "ü", "\udcff", "\n", "c" * 300])
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
TARGETS = st.sampled_from(["..", "../outside", "../../outside/flag", "/", "a", "b/..", ".", "x" * 255 + "/../.."])
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
)
ENTRIES = st.lists(st.builds(entry, NAMES, KINDS, TARGETS, st.binary(max_size=600)), max_size=12)


def kept(entries: list[Entry]) -> list[Entry]:
    """The same, links and pipes without contents: the library writes those of regular files alone."""
    return [entry(i.name, i.type, i.linkname, data if i.isreg() else b"") for i, data in entries]


@given(
    ENTRIES,
    st.sampled_from(FORMATS[1:]),
    st.integers(1, 2000),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4),
)
@settings(deadline=None, max_examples=120)
def test_nothing_outside_changes_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[Entry],
    form: int,
    step: int,
    spoilt: list[tuple[int, int]],
) -> None:
    """Random members, then random bytes of the archive changed; below a destination that holds links out of it."""
    top = tmp_path_factory.mktemp("fuzz")
    here, outside = top / "here", top / "outside"
    for folder in (here, outside):
        folder.mkdir()
    (outside / "flag").write_text("ours")
    (here / "link").symlink_to(outside)
    (here / "a").symlink_to(outside / "flag")
    before = snapshot(outside)
    data = bytearray(archive(kept(entries), form))
    for place, value in spoilt:
        data[place % len(data)] = value
    staging, _ = unpack(bytes(data), here, step=step)
    assert snapshot(outside) == before
    assert sorted(path.name for path in top.iterdir()) == ["here", "outside"]
    for name, digest in staging.digests.items():
        path = here / name
        assert path.resolve() == (here.resolve() / name) and path.stat().st_nlink == 1
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


READ_WITH = """
import sys
from pathlib import Path
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.incoming.reception import Staging
from run_benchmarks.hosts.incoming.tar_stream import TarStream
staging = Staging(Path(sys.argv[1]).parent, CollectLimits())
stream = TarStream(staging)
while chunk := sys.stdin.buffer.read(1 << 16):
    stream.feed(chunk)
staging.move(staging.digests, Path(sys.argv[1]))
staging.close()
print(sorted(staging.digests), stream.at_rest, sys.version_info[:3])
"""


def test_the_system_s_own_python_reads_them_too(tmp_path: Path, outside: Path) -> None:
    """Debian 12's 3.11.2 has no filter for extraction at all. No package of the controller is needed to read."""
    python = Path("/usr/bin/python3")
    if (
        not python.exists()
        or subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]).returncode
    ):
        pytest.skip("needs a /usr/bin/python3 of 3.11 or newer")
    (tmp_path / "here").mkdir()
    before = snapshot(outside)
    answer = subprocess.run(
        [python, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{READ_WITH}", tmp_path / "here"],
        input=archive(long_path_and_links(outside)),
        capture_output=True,
        check=True,
    )
    assert answer.stdout.startswith(b"['escape/new', 'flag'] True (3, "), answer.stdout
    assert (tmp_path / "here" / "flag").read_bytes() == b"overwritten" and snapshot(outside) == before


PULL_WITH = """
import sys
from pathlib import Path
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.transfer import pull
print(sorted(pull(LocalHost("node1"), sys.argv[1], Path(sys.argv[2]), deadline=30).files))
"""


def test_a_collection_under_the_system_s_own_python(tmp_path: Path) -> None:
    """With the packages of this environment, where that Python can load them."""
    python, packages = Path("/usr/bin/python3"), next(path for path in sys.path if path.endswith("site-packages"))
    environment = {"PYTHONPATH": f"{ROOT}:{packages}", "PATH": os.environ["PATH"]}
    loads = [str(python), "-c", "import docker, sys; sys.exit(sys.version_info < (3, 11))"]
    if not python.exists() or subprocess.run(loads, env=environment, capture_output=True).returncode:
        pytest.skip("needs a /usr/bin/python3 of 3.11 or newer that loads our packages")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "rank0.out.log").write_text("log\n")
    argv = [str(python), "-c", PULL_WITH, str(tmp_path / "there"), str(tmp_path / "here")]
    answer = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert answer.stdout == "['rank0.out.log']\n", answer.stderr
    assert (tmp_path / "here" / "rank0.out.log").read_text() == "log\n"
