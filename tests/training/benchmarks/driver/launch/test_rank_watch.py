"""What the launcher's watch records of processes that speak to it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.pulse import SOCKET_ENV, send_to
from protocol.rank_states import NodeRanks, RankState
from tests.training.benchmarks.driver.launch.launching import ROOT, wait_until
from training.benchmarks.driver.launch import rank_watch
from training.benchmarks.driver.launch.rank_watch import RankWatch

RANK = """
import sys, time
from protocol import pulse
pulse.begin(3)
pulse.note_event("TRAIN_START")
pulse.step()
if sys.argv[1] == "leaves":
    pulse.leave(0)
    sys.exit(0)
time.sleep(60)
"""


def started(watch: RankWatch, how: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {SOCKET_ENV: str(watch.path)}
    return subprocess.Popen([sys.executable, "-c", RANK, how], env=environment, cwd=ROOT)


def state_of(folder: Path) -> RankState | None:
    try:
        return NodeRanks.read(folder).ranks[0]
    except (OSError, IndexError):
        return None


def test_a_rank_that_leaves_is_timed_and_its_code_is_left_for_its_parent(tmp_path: Path) -> None:
    with RankWatch(tmp_path, tmp_path) as watch:
        process = started(watch, "leaves")
        wait_until(lambda: bool(watch.ended_ms), "its end")
        assert process.wait() == 0
    state = state_of(tmp_path)
    assert state is not None and state.left_us is not None and state.ended_us is not None
    assert (state.rank, state.pid, state.exit_code, state.left_code, state.signal) == (3, process.pid, 0, 0, None)
    assert state.left_us < state.ended_us
    assert (state.steps, state.events, state.last_event, state.is_training) == (1, 1, "TRAIN_START", True)


def test_a_process_that_is_stopped_is_seen_so_and_its_signal_afterwards(tmp_path: Path) -> None:
    with RankWatch(tmp_path, tmp_path) as watch:
        process = started(watch, "stays")
        wait_until(lambda: (state := state_of(tmp_path)) is not None and state.steps == 1, "its counts")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: (state := state_of(tmp_path)) is not None and state.state == "T", "its state")
        process.kill()
        wait_until(lambda: bool(watch.ended_ms), "its end")
        process.wait()
    state = state_of(tmp_path)
    assert state is not None and (state.signal, state.exit_code, state.state) == ("SIGKILL", None, "T")


@pytest.mark.parametrize(
    "word", [b"", b"\xff", b"{}", b"[1]", b'{"pid": "x", "what": "here"}', b'{"pid": 999999999, "what": "pulse"}']
)
def test_words_that_are_none_are_ignored(word: bytes, tmp_path: Path) -> None:
    with RankWatch(tmp_path, tmp_path) as watch:
        send_to(watch.path, word)
        send_to(watch.path, json.dumps({"pid": os.getpid(), "what": "here", "rank": 1}).encode())
        wait_until(lambda: state_of(tmp_path) is not None, "the word after it")
    state = state_of(tmp_path)
    assert state is not None and state.rank == 1


def test_what_a_stopped_process_is_called_while_it_is_ended_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round with such a rank ends by killing it; the last look must not take the finding away."""
    seen = iter(["S", "T", "R", "R"])
    monkeypatch.setattr(rank_watch, "_state", lambda pid: next(seen))
    rank = rank_watch._Rank(rank=0, told_ms=1, moved_ms=1)
    found = []
    for told_ms in (1, 1, 1, 2):  # with its last word it goes on
        rank.told_ms = told_ms
        rank.look(1)
        found.append(rank.state)
    assert found == ["S", "T", "T", "R"]
