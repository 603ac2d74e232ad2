"""What diagnose and attach say where they cannot do what was asked: one line and the right exit code."""

import errno
import os
import signal
import subprocess
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from run_benchmarks.commands import starting
from run_benchmarks.commands.diagnose import Ladder
from run_benchmarks.commands.status import follow
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_USAGE
from run_benchmarks.state.journal import JournalError
from tests.run_benchmarks.conftest import TEST, Load


@pytest.fixture
def settings(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """For diagnose: a case on two hosts that nobody reaches."""
    monkeypatch.setattr(os, "umask", lambda _: 0)
    key = tmp_path / "key"
    key.touch()
    case = "ONE['nnodes'] = 2\nONE['config'] = 'config_CPUx2x2'\nPYTHON = '/usr/bin/python3'\n"
    folder = f"FLAGPERF_LOG_PATH_HOST = {str(tmp_path / 'result')!r}\n"
    return load(f"{TEST}{case}{folder}", f"HOSTS = ['192.0.2.1', '192.0.2.2']\nSSH_KEY = {str(key)!r}\n")


def test_a_signal_in_a_rung_does_not_make_it_one_that_failed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a rung says then is that its round was aborted, not what is wrong with the hosts."""

    def broken_off(_: Ladder) -> tuple[str, ...]:
        os.kill(os.getpid(), signal.SIGTERM)
        return ("192.0.2.1 and 192.0.2.2: aborted: interrupted by SIGTERM",)

    monkeypatch.setattr(Ladder, "_ssh", broken_off)
    assert starting.diagnose(settings)[0] == EXIT_INTERRUPTED
    written = capsys.readouterr()
    assert "FAILED" not in written.out and "interrupted by SIGTERM" in written.err


def test_a_result_folder_that_cannot_be_made(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "result").touch()
    assert starting.diagnose(settings)[0] == EXIT_USAGE
    assert starting.start(settings)[0] == EXIT_USAGE
    assert capsys.readouterr().err.count("result: File exists") == 2


def test_a_head_node_whose_disk_is_full_in_a_rung(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Ladder) -> tuple[str, ...]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Ladder, "_ssh", full)
    assert starting.diagnose(settings)[0] == EXIT_FAIL
    said = capsys.readouterr().err
    assert "No space left on device" in said and "the head node's own disk is full" in said
    assert "to remove what may be left on the hosts: " in said and said.count("\n") == 1


def test_a_run_without_a_log_cannot_be_followed(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, pytest.raises(JournalError, match=r"run\.log: no log"):
        follow(tmp_path, out)


def test_a_seal_that_a_killed_controller_owed_is_made_and_signed_or_it_says_why(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, key = tmp_path / "run20261121191924", tmp_path / "key"
    folder.mkdir()
    key.write_text("no key")
    prepared = prepare(load(TEST + f"SEAL_KEY = {str(key)!r}\n"), folder.name)
    assert starting._seal_late(prepared, folder) == EXIT_FAIL
    said = " ".join("".join(capsys.readouterr()).split())
    assert "Sealed as it is now: sha256" in said and "is not signed with SEAL_KEY" in said
    sealed = (folder / "seal.json").read_bytes()
    assert sha256(sealed).hexdigest() in (folder / "run.log").read_text()
    key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (folder / "later.txt").touch()
    assert starting._seal_late(prepared, folder) == EXIT_PASS and (folder / "seal.json.sig").exists()
    assert "seal.json.sig late: signed" in (folder / "run.log").read_text()
    assert (folder / "seal.json").read_bytes() == sealed, "it vouches for what it was made of"


def test_a_collection_of_nothing_seals_a_run_that_has_no_seal(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run20261121191924"
    folder.mkdir()
    (folder / "run.json").touch()
    past = SimpleNamespace(started=SimpleNamespace(save_baseline=None), run_ended=True)
    monkeypatch.setattr(starting, "Journal", lambda _: SimpleNamespace(read=lambda: past))
    monkeypatch.setattr(starting, "is_owing", lambda _: False)
    monkeypatch.setattr(starting, "_as_begun", lambda *_: prepare(load(TEST), folder.name))
    assert starting.collect(load(TEST), folder) == EXIT_PASS
    assert (folder / "seal.json").exists()
