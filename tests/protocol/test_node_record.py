import resource
from pathlib import Path

import pytest
from pydantic import ValidationError

from protocol.node_record import NODE_EXIT_FILE, NodeExit, RankFailure, signal_name


def failure(exit_code: int | None, signal: str | None) -> RankFailure:
    return RankFailure(
        rank=1, local_rank=1, pid=9, exit_code=exit_code, signal=signal, time_ms=5, message="boom", stopped=False
    )


def node_exit(failures: list[RankFailure]) -> NodeExit:
    return NodeExit(
        exit_code=7, failures=failures, argv=["python"], interface="eth0", started_ms=1, finished_ms=2, torch="2.13.0"
    )


def test_a_record_is_written_whole_and_read_back(tmp_path: Path) -> None:
    record = node_exit([failure(7, None)])
    record.write(tmp_path)
    assert NodeExit.read(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == [NODE_EXIT_FILE]


def test_a_record_that_cannot_be_finished_leaves_the_one_before(tmp_path: Path) -> None:
    """The controller reads the file while a node may still write it, and on a disk that may be full."""
    before = node_exit([])
    before.write(tmp_path)
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / NODE_EXIT_FILE).stat().st_size // 2, former[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            node_exit([failure(7, None)]).write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    assert NodeExit.read(tmp_path) == before and [path.name for path in tmp_path.iterdir()] == [NODE_EXIT_FILE]


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        NodeExit.read(tmp_path)
    (tmp_path / NODE_EXIT_FILE).write_text('{"exit_code": 300}')
    with pytest.raises(ValidationError, match="less than or equal to 255"):
        NodeExit.read(tmp_path)


@pytest.mark.parametrize(
    ("exit_code", "signal", "code"),
    [(7, None, 7), (None, "SIGKILL", 137), (None, "SIGTERM", 143), (None, "SIG35", 163)],
)
def test_the_code_that_a_shell_would_show(exit_code: int | None, signal: str | None, code: int) -> None:
    assert failure(exit_code, signal).shell_code == code


def test_signal_names() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(40) == "SIG40"
