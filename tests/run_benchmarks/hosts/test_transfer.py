"""Folders to and from a host: whole, verified, and nothing outside their folder."""

import errno
import hashlib
import io
import os
import shutil
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import CollectError, CommandError, DeadlineError, HostError
from run_benchmarks.hosts import transfer
from run_benchmarks.hosts.base import Completed, Host
from run_benchmarks.hosts.incoming import reception
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.transfer import Pulled, fetch, pull, push
from tests.run_benchmarks.hosts.sshd import SshServer

SECONDS = 60.0
FILES = {
    "rank0.out.log": b"text\n",
    "empty": b"",
    "deep/er/binary": os.urandom(3 << 20),
    "with space 'and' \"quotes\"": b"1",
    "-dash": b"2",
    "ünïcode €": b"3",
    "line\nbreak\\n": b"4",
}


def archive(files: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class OnSharedFiles(LocalHost):
    """A host of another name which sees our files, and has no tar; what it sees as `there` may lie elsewhere here."""

    def __init__(self, there: Path, own: Path | None = None) -> None:
        super().__init__("node1", environment=lambda: {**os.environ, "PATH": str(self.programs)})
        self.there, self.own, self.programs = there, own or there, there.parent / "bin"
        self.programs.mkdir()
        for name in ("sh", "find", "sha256sum", "rm", "printf"):
            (self.programs / name).symlink_to(shutil.which(name) or name)

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        return super().run([str(self.own) if word == str(self.there) else word for word in argv], **options)


def test_a_folder_on_a_shared_file_system_is_read_where_it_lies(tmp_path: Path) -> None:
    """The host sends nothing, and its sums decide: a file that it has otherwise is refused."""
    there, here = tmp_path / "there", tmp_path / "here"
    push(LocalHost("localhost"), archive(FILES), str(there), deadline=SECONDS)
    (there / "link").symlink_to("/etc/passwd")
    said: list[str] = []
    pulled = fetch(OnSharedFiles(there), str(there), here, deadline=SECONDS, warn=said.append)
    assert pulled.files == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert tree(here) == FILES and [line.partition(" is left out")[0] for line in said] == ["node1: link"]


def test_a_folder_of_the_same_name_here_is_not_taken_for_the_host_s(tmp_path: Path) -> None:
    there, own = tmp_path / "there", tmp_path / "own"
    for folder, text in ((there, "ours"), (own, "of the host")):
        folder.mkdir()
        (folder / "rank0.out.log").write_text(text)
    host = OnSharedFiles(there, own)
    (host.programs / "tar").symlink_to(shutil.which("tar") or "tar")
    fetch(host, str(there), tmp_path / "here", deadline=SECONDS, warn=pytest.fail)
    assert tree(tmp_path / "here") == {"rank0.out.log": b"of the host"}


def test_what_a_shared_file_system_shows_late_comes_from_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS shows an old size of a file: the sums differ, and the host sends it."""
    there, own = tmp_path / "there", tmp_path / "own"
    for folder, text in ((there, "begin"), (own, "begin and end")):
        folder.mkdir()
        (folder / "rank0.out.log").write_text(text)
    monkeypatch.setattr(transfer, "sees", lambda *_: True)
    host = OnSharedFiles(there, own)
    (host.programs / "tar").symlink_to(shutil.which("tar") or "tar")
    fetch(host, str(there), tmp_path / "here", deadline=SECONDS, warn=pytest.fail)
    assert tree(tmp_path / "here") == {"rank0.out.log": b"begin and end"}


def test_a_folder_goes_there_and_comes_back(host: Host, tmp_path: Path) -> None:
    there, here = tmp_path / "code" / "abc", tmp_path / "here"
    push(host, archive(FILES), str(there), deadline=SECONDS)
    assert tree(there) == FILES
    assert there.stat().st_mode & 0o777 == 0o755
    (there / "workload.lock").touch()
    pulled = pull(host, str(there), here, deadline=SECONDS, warn=pytest.fail)
    assert not pulled.incomplete
    assert pulled.files == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert tree(here) == FILES
    assert here.stat().st_mode & 0o777 == 0o750
    assert all(path.stat().st_mode & 0o027 == 0 for path in here.rglob("*") if path.is_file())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "here"]


def test_pulling_adds_to_what_is_there(host: Host, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder, name, text in ((there, "sub/new", "new"), (there, "both", "from the host"), (here, "both", "old")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (here / "start_pytorch_task.log").write_text("ours")
    (here / "sub").mkdir()
    (here / "sub" / "kept").write_text("kept")
    pull(host, str(there), here, deadline=SECONDS)
    expected = {"sub/new": b"new", "sub/kept": b"kept", "both": b"from the host", "start_pytorch_task.log": b"ours"}
    assert tree(here) == expected


def test_an_empty_folder_is_no_error(host: Host, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert pull(host, str(tmp_path / "there"), tmp_path / "here", deadline=SECONDS).files == {}


def test_what_arrived_before_the_link_broke_is_kept_and_the_rest_is_named(own_sshd: SshServer, tmp_path: Path) -> None:
    host = own_sshd.host()
    host.connect()
    there, here = tmp_path / "there", tmp_path / "here"
    files = {f"rank{index}.out.log": os.urandom(16 << 20) for index in range(4)} | {"deep/small": b"small\n"}
    for name, data in files.items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(data)
    broken = _breaking(host, after=40 << 20, how=own_sshd.kill_sessions)
    with pytest.raises(CollectError, match="the transfer broke") as caught:
        pull(broken, str(there), here, deadline=SECONDS)
    sound, missing = caught.value.files, caught.value.missing
    assert {*sound, *missing} == {*files} and set(sound).isdisjoint(missing)
    assert len([name for name in sound if name.startswith("rank")]) >= 2 and missing
    assert sound == {name: hashlib.sha256(files[name]).hexdigest() for name in sound}
    assert tree(here) == {name: files[name] for name in sound}
    host.close()


@pytest.fixture
def paced_from_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace of a transfer counts once it has begun, however long a busy machine takes to start its programs."""
    watch = reception.Reception._watch

    def begun(self: reception.Reception, seconds: float, is_over: threading.Event) -> None:
        while not self._bytes and not is_over.wait(0.01):
            pass
        watch(self, seconds, is_over)

    monkeypatch.setattr(reception.Reception, "_watch", begun)


@pytest.mark.usefixtures("paced_from_the_first_byte")
def test_what_arrived_before_the_rest_failed_to_come_is_kept(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "a").write_bytes(b"a")
    (there / "b").write_bytes(os.urandom(1 << 21))
    monkeypatch.setattr(transfer, "PULL", transfer.PULL.replace("code=$?\ndone", "code=$?\nsleep 60\ndone"))
    with pytest.raises(CollectError, match=r"(?s)the transfer broke.*less than 1 MiB a second for 1 s") as caught:
        pull(host, str(there), tmp_path / "here", deadline=1.0)
    assert isinstance(caught.value.__cause__, DeadlineError), "it is owed"
    assert caught.value.files == {"a": hashlib.sha256(b"a").hexdigest()} and caught.value.missing == ("b",)
    assert tree(tmp_path / "here") == {"a": b"a"}


@pytest.mark.usefixtures("paced_from_the_first_byte")
@pytest.mark.parametrize("is_urgent", [False, True], ids=["while the run goes on", "until the run is to end"])
def test_a_slow_link_that_goes_on_delivering_is_waited_for(
    is_urgent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times as long as one that delivers nothing; no longer than that once the run is to end."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "a").write_bytes(os.urandom(1 << 20))
    monkeypatch.setattr(reception, "SLOWEST_BYTES", 1)
    local, limits = LocalHost("node1"), CollectLimits(is_urgent=lambda: is_urgent)

    class Slow:
        name = local.name

        def run(self, argv: list[str], *, on_stdout: Callable[[bytes], None], **options: Any) -> Completed:
            def take(chunk: bytes) -> None:
                for begin in range(0, len(chunk), 1 << 15):
                    time.sleep(0.1)
                    on_stdout(chunk[begin : begin + (1 << 15)])

            return local.run(argv, on_stdout=take, **options)

    def pulled() -> Pulled:
        return pull(Slow(), str(there), tmp_path / "here", deadline=1.0, limits=limits)  # type: ignore[arg-type]

    if is_urgent:
        with pytest.raises(CollectError, match="the run is to end, and it goes on after 1 s") as caught:
            pulled()
        assert isinstance(caught.value.__cause__, DeadlineError), "it is owed"
        return
    assert not pulled().incomplete
    assert tree(tmp_path / "here") == {"a": (there / "a").read_bytes()}


def _breaking(host: Host, *, after: int, how: Callable[[], object]) -> Host:
    """The host, which calls `how` once so many bytes of a command's output have come."""

    class Breaking:
        name = host.name

        def run(self, argv: list[str], *, on_stdout: Callable[[bytes], None], **options: Any) -> Completed:
            came = 0

            def take(chunk: bytes) -> None:
                nonlocal came
                on_stdout(chunk)
                if came <= after < came + len(chunk):
                    how()
                came += len(chunk)

            return host.run(argv, on_stdout=take, **options)

    return Breaking()  # type: ignore[return-value]


def test_a_missing_folder_is_named(host: Host, tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="nowhere"):
        pull(host, str(tmp_path / "nowhere"), tmp_path / "here", deadline=SECONDS)


def test_a_push_leaves_an_existing_folder_alone(host: Host, tmp_path: Path) -> None:
    there = tmp_path / "code" / "abc"
    push(host, archive({"a": b"first"}), str(there), deadline=SECONDS)
    push(host, archive({"a": b"second", "b": b""}), str(there), deadline=SECONDS)
    assert tree(there) == {"a": b"first"}
    assert [path.name for path in there.parent.iterdir()] == ["abc"]


def test_a_torn_push_leaves_nothing(host: Host, tmp_path: Path) -> None:
    whole = archive({"a": b"x" * 100_000}).getvalue()
    with pytest.raises(CommandError):
        push(host, io.BytesIO(whole[:50_000]), str(tmp_path / "code" / "abc"), deadline=SECONDS)
    assert list((tmp_path / "code").iterdir()) == []


def test_concurrent_pushes_of_one_digest_leave_one_whole_folder(host: Host, tmp_path: Path) -> None:
    files = {f"file{index}": os.urandom(50_000) for index in range(20)}
    there = tmp_path / "code" / "abc"
    errors: list[HostError] = []

    def work() -> None:
        try:
            push(host, archive(files), str(there), deadline=SECONDS)
        except HostError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert tree(there) == files
    assert [path.name for path in there.parent.iterdir()] == ["abc"]


class Tampering(LocalHost):
    """A host whose answer to the pull is changed on its way."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        super().__init__("node1")
        self._change = change

    def run(self, argv: Any, *, on_stdout: Any = None, **options: Any) -> Completed:
        received: list[bytes] = []
        completed = super().run(argv, on_stdout=received.append, **options)
        on_stdout(self._change(b"".join(received)))
        return completed


def members(*added: tarfile.TarInfo) -> Callable[[bytes], bytes]:
    """An archive with these members instead, after an innocent one."""

    def change(_: bytes) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            innocent = tarfile.TarInfo("innocent")
            innocent.size = 1
            tar.addfile(innocent, io.BytesIO(b"x"))
            for entry in added:
                tar.addfile(entry, io.BytesIO(b"y" * entry.size))
        return buffer.getvalue()

    return change


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
    return entry


@pytest.mark.parametrize(
    ("added", "why"),
    [
        ([member("../escaped")], "../escaped is left out: its name leaves the folder"),
        ([member("deep/../../escaped")], "its name leaves the folder"),
        ([member("{outside}/escaped")], "its name is absolute"),
        (
            [member("link", tarfile.SYMTYPE, "../outside"), member("link/escaped")],
            "link is left out: a symbolic link",
        ),
        ([member("latest", tarfile.SYMTYPE, "/etc")], "latest is left out: a symbolic link"),
        ([member("hard", tarfile.LNKTYPE, "../outside")], "hard is left out: a hard link"),
        ([member("null", tarfile.CHRTYPE)], "null is left out: a device"),
        ([member("pipe", tarfile.FIFOTYPE)], "pipe is left out: a named pipe"),
    ],
    ids=["dots", "deep dots", "absolute", "link out", "absolute link", "hard link", "device", "pipe"],
)
def test_what_is_neither_file_nor_folder_or_leaves_the_folder_is_left_out_by_name(
    tmp_path: Path, added: list[tarfile.TarInfo], why: str
) -> None:
    there, outside, here = tmp_path / "there", tmp_path / "outside", tmp_path / "run" / "here"
    there.mkdir()
    outside.mkdir()
    (there / "innocent").write_bytes(b"x")
    for entry in added:
        entry.name = entry.name.replace("{outside}", str(outside))
    said: list[str] = []
    host = Tampering(members(*added))
    pulled = pull(host, str(there), here, deadline=SECONDS, warn=said.append)
    assert pulled.files == {"innocent": hashlib.sha256(b"x").hexdigest()} and not pulled.incomplete
    assert any(line.startswith("node1: ") and why in line for line in said), said
    assert {path.name for path in here.iterdir()} <= {"innocent", "link"}
    assert not any(path.is_symlink() for path in here.rglob("*"))
    assert [path.name for path in here.parent.iterdir()] == ["here"]
    assert list(outside.iterdir()) == []


def test_files_that_differ_or_lack_are_named_and_the_sound_ones_stay(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for name in ("sound", "bent", "lost"):
        (there / name).write_text(name * 1000)

    def spoil(_: bytes) -> bytes:
        return archive({"sound": b"sound" * 1000, "bent": b"BENT" * 1000}).getvalue()

    with pytest.raises(CollectError, match=r"incomplete or not at all: bent, lost$"):
        pull(Tampering(spoil), str(there), here, deadline=SECONDS)
    assert (here / "sound").read_text() == "sound" * 1000


def test_of_a_torn_archive_the_sound_files_alone_are_kept(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    for name in ("sound", "bent", "torn"):
        (there / name).write_text(name * 1000)
    came = archive({"sound": b"sound" * 1000, "bent": b"BENT" * 1000, "torn": b"torn" * 1000}).getvalue()
    with pytest.raises(
        CollectError, match=r"archive was refused: it ends in the middle.*\n.*not at all: bent, torn$"
    ) as e:
        pull(Tampering(lambda _: came[:13_000]), str(there), here, deadline=SECONDS)
    assert tree(here) == {"sound": b"sound" * 1000} and e.value.files.keys() == {"sound"}


@pytest.mark.parametrize("keep", [0, 10, 700, 5000])
def test_a_torn_archive_is_an_error(tmp_path: Path, keep: int) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").write_bytes(b"x" * 20_000)
    with pytest.raises(CollectError):
        pull(Tampering(lambda data: data[:keep]), str(there), tmp_path / "here", deadline=SECONDS)


def test_a_failing_tar_is_told_and_what_it_sent_stays(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an unreadable or vanishing file comes to."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "good").write_text("good")
    monkeypatch.setattr(transfer, "PULL", transfer.PULL.replace("-cf - {} +", "-cf - ./vanished {} +"))
    with pytest.raises(CollectError, match="vanished"):
        pull(host, str(there), tmp_path / "here", deadline=SECONDS)
    assert (tmp_path / "here" / "good").read_text() == "good"


def test_what_tar_says_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that it tells may have any length, and a hostile host's tar says what it likes."""
    wrapper, real = tmp_path / "bin/tar", shutil.which("tar")
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nprintf "tar: %0100000d\\n" 0 >&2\nexec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").write_bytes(b"x")
    said: list[str] = []
    pulled = pull(
        LocalHost("localhost"), str(tmp_path / "there"), tmp_path / "here", deadline=SECONDS, warn=said.append
    )
    assert set(pulled.files) == {"file"} and said and max(map(len, said)) < 300


def test_a_full_disk_here_is_no_lost_link(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("x")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("run_benchmarks.hosts.incoming.reception.os.write", full)
    with pytest.raises(CollectError, match=r"head node: .*No space left"):
        pull(host, str(tmp_path / "there"), tmp_path / "here", deadline=SECONDS)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_a_file_system_may_hold_comes_or_is_named(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to a file, a folder and nothing, a pipe, a name that is no UTF-8; a hard link comes as the file it is."""
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "folder").mkdir(parents=True)
    (there / "folder" / "file").write_text("file")
    (there / "hard").hardlink_to(there / "folder" / "file")
    (there / "latest").symlink_to(there / "folder")
    (there / "dangling").symlink_to("/nowhere")
    os.mkfifo(there / "pipe")
    monkeypatch.chdir(there)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    (there / os.fsdecode(b"latin \xe9")).write_text("x")
    said: list[str] = []
    pulled = pull(host, str(there), here, deadline=SECONDS, warn=said.append)
    assert pulled.files.keys() == {"folder/file", "hard"} and pulled.incomplete
    expected = [
        "tar: ./socket: socket ignored",
        "latest is left out: a symbolic link",
        "dangling is left out: a symbolic link",
    ]
    expected += ["pipe is left out: a named pipe", "latin \ufffd is left out: its name is not UTF-8"]
    assert sorted(said) == sorted(f"{host.name}: {line}" for line in expected)


def test_a_folder_of_a_host_that_this_user_may_not_enter_here_comes_from_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /root/... of a host, on a head node whose user is another."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "rank0.out.log").write_text("line\n")

    def refused(*_: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refused)
    assert not transfer.sees(LocalHost("host1"), str(there))
    monkeypatch.undo()
    assert transfer.sees(LocalHost("host1"), str(there)), "this machine's own folder, by another host's name"
