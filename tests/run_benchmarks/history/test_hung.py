"""A history on a file system whose server is gone: the run still ends, and says where it kept itself.

The file system is the kernel's FUSE, whose server here takes requests and answers none, as that of a dead NFS server:
who touches it stands in state D and cannot be killed.
"""

import contextlib
import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.history import recording
from run_benchmarks.history.database import Database
from run_benchmarks.history.recent import drawn
from run_benchmarks.history.recording import FILE
from run_benchmarks.history.store import case_names
from tests.run_benchmarks.history.test_history import OWNER, run_of
from tests.run_benchmarks.results.recorded_runs import on_disk

DEVICE = Path("/dev/fuse")
# linux/fuse.h: a request begins with length, opcode and a number that its answer repeats.
REQUEST, ANSWER, INIT = struct.Struct("=IIQ"), struct.Struct("=IiQ"), 26
VERSION = struct.pack("=IIIIHHII", 7, 31, 0, 0, 12, 9, 1 << 16, 1) + bytes(32)
FORCE, DETACH = 1, 2  # umount(2)
LIMIT_S = 20.0  # in which a process on a busy machine gets as far as the file
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(DEVICE, os.W_OK), reason="only root mounts, and only where there is /dev/fuse"
)


class Server(threading.Thread):
    """The server of a file system: it begins it, takes each further request and never answers."""

    def __init__(self, device: int) -> None:
        super().__init__(daemon=True)
        self._device = device
        self.taken = threading.Event()

    def run(self) -> None:
        """Until the file system is gone."""
        with contextlib.suppress(OSError):
            while request := os.read(self._device, 1 << 17):
                _, opcode, number = REQUEST.unpack_from(request)
                if opcode == INIT:
                    os.write(self._device, ANSWER.pack(ANSWER.size + len(VERSION), 0, number) + VERSION)
                else:
                    self.taken.set()


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """A folder on such a file system, and its server."""
    libc, folder = ctypes.CDLL(None, use_errno=True), tmp_path / "hung"
    folder.mkdir()
    device = os.open(DEVICE, os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"hung", bytes(folder), b"fuse", 0, options) != 0:
        os.close(device)
        pytest.skip(f"mounting is not allowed here: {os.strerror(ctypes.get_errno())}")
    server = Server(device)
    server.start()
    try:
        yield folder, server
    finally:
        libc.umount2(bytes(folder), FORCE | DETACH)
        os.close(device)
        server.join(20)


def states() -> list[str]:
    """The states of this process's children, by proc(5)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent, state = stat.read_text().rpartition(")")[2].split()[1::-1]
            if int(parent) == os.getpid():
                found.append(state)
    return found


@pytest.mark.nightly
def test_a_run_whose_history_is_on_a_dead_server_ends_and_says_where_it_is_kept(
    hung: tuple[Path, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder, server = hung
    run = on_disk(tmp_path / "result", run_of(0, 100.0))
    said = recording.record(run, OWNER, f"sqlite:///{folder / FILE}", seconds=LIMIT_S)
    assert server.taken.is_set() and "D" in states(), "a process hangs in the system call, though it was killed"
    beside = tmp_path / "state" / "clusterdyno" / FILE
    assert "did not answer within 20 s" in said and f"it is kept in {beside}" in said and "history --rebuild" in said
    assert case_names(Database(recording.fallback_url())) == ["PAIRS"]
    found, problem = drawn([run], f"sqlite:///{folder / FILE}", "en", seconds=LIMIT_S)
    assert not found and "did not answer" in problem, "a reader does not hang either"
