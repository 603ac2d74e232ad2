"""A file is written completely or not at all."""

import os
import threading
from pathlib import Path

import pytest

from common.errors import InputProblems
from common.whole_files import (
    others_kept,
    refuse_present,
    whole_file,
    whole_files,
    whole_set,
    write_durably,
    write_text,
    write_whole,
)


def test_a_file_and_its_folders_are_made(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "file", [b"one", b"two"])
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"onetwo"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["file"]


def test_a_file_in_the_place_of_a_folder_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "in", tmp_path / "file" / "deep" / "in"):
        with pytest.raises(OSError, match="Not a directory"):
            write_whole(path, [b"one"])
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_the_older_file_and_nothing_else(tmp_path: Path, raised: type[BaseException]) -> None:
    write_whole(tmp_path / "file", [b"old"])
    with pytest.raises(raised), whole_file(tmp_path / "file") as file:
        file.write(b"new")
        raise raised
    with pytest.raises(raised), whole_file(tmp_path / "deep" / "er" / "file"):
        raise raised
    with pytest.raises(raised), whole_file(tmp_path / "other" / "file"):  # a run beside it writes into its folder
        (tmp_path / "other" / "kept").write_text("x")
        raise raised
    (tmp_path / "other" / "kept").unlink()
    (tmp_path / "other").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_other_content_is_kept_where_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with others_kept(keep=True):
        write_whole(path, [b"x" * 3_000_000])
        write_whole(path, [b"x" * 3_000_000])
        for other in (b"y", b"x" * 2_999_999 + b"y"):
            with pytest.raises(InputProblems, match="is there with other content; give --force"):
                write_whole(path, [other])
    assert path.read_bytes() == b"x" * 3_000_000
    write_whole(path, [b"y"])
    assert path.read_bytes() == b"y" and len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("older", ["first", "second", "third"])
def test_of_several_files_all_or_none_take_their_places(tmp_path: Path, older: str) -> None:
    (tmp_path / older).write_bytes(b"old")
    paths = [tmp_path / name for name in ("first", "second", "third")]
    with others_kept(keep=True), pytest.raises(InputProblems, match=f"{older}: is there"), whole_files(paths) as files:
        for file in files:
            file.write(b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(older, b"old")]
    (tmp_path / older).write_bytes(b"new")
    with others_kept(keep=True), whole_files(paths) as files:
        for file in files:
            file.write(b"new")
    assert [path.read_bytes() for path in paths] == [b"new"] * 3 and len([*tmp_path.iterdir()]) == 3


def test_files_that_are_written_one_by_one_make_a_set(tmp_path: Path) -> None:
    """A set in a set, as a workload with its parameters, is part of it; all mistakes are told."""
    (tmp_path / "first").write_bytes(b"old")
    (tmp_path / "third").write_bytes(b"old")
    with pytest.raises(InputProblems) as caught, others_kept(keep=True), whole_set():
        for name in ("first", "new/second"):
            with whole_set():
                write_whole(tmp_path / name, [b"new"])
        write_text(tmp_path / "third", "new")
    assert [Path(each.file).name for each in caught.value.problems] == ["first", "third"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"first": b"old", "third": b"old"}
    with pytest.raises(InputProblems, match=r"(?s)first: is there; give.*third: is there"), others_kept(keep=True):
        refuse_present(tmp_path / name for name in ("first", "new", "third"))
    refuse_present([tmp_path / "first"])
    with whole_set():
        for name in ("first", "new/second"):
            write_whole(tmp_path / name, [b"new"])
    assert (tmp_path / "new" / "second").read_bytes() == (tmp_path / "first").read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["first", "new", "second", "third"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", [b"new"])
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"


def test_a_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, [b"through"])
    reader.join()
    assert received == [b"through"] and pipe.is_fifo()


def test_stdout_is_a_file_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_whole(Path("-"), [b"shown"])
    assert capfdbinary.readouterr().out == b"shown"


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file/below") as caught:
        write_whole(tmp_path / "file" / "below", [b""])
    assert caught.value.filename == str(tmp_path / "file" / "below")


def test_a_reserved_file_is_as_long_as_what_was_written(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", iter([b"x" * (4 << 20), b"y"]), size=(4 << 20) + 1)
    assert (tmp_path / "file").stat().st_size == (4 << 20) + 1
    with pytest.raises(OSError) as caught:
        write_whole(tmp_path / "huge", [b"x"], size=1 << 62)
    assert caught.value.filename == str(tmp_path / "huge") and [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_small_text_takes_the_place_of_a_link_or_a_pipe_that_somebody_left_there(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        write_text(tmp_path / name, "ä")
        assert (tmp_path / name).read_text(encoding="utf-8") == "ä" and not (tmp_path / name).is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "kept" and len([*tmp_path.iterdir()]) == 3
    with pytest.raises(OSError, match="no/folder"):
        write_text(tmp_path / "no" / "folder", "x")


def test_a_durable_file_has_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        write_durably(tmp_path / "file", [b"a", b"b"], mode=0o640)
    finally:
        os.umask(before)
    assert (tmp_path / "file").read_bytes() == b"ab" and (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    with pytest.raises(ZeroDivisionError):
        write_durably(tmp_path / "file", (b"%d" % (1 // number) for number in (1, 0)))
    assert (tmp_path / "file").read_bytes() == b"ab" and len([*tmp_path.iterdir()]) == 1
