"""`show` within 80 columns of a terminal and piped; `attach` with all cases and the time left from the history."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from run_benchmarks.commands import attaching, cli
from run_benchmarks.commands.attaching import rows
from run_benchmarks.console.command_line import RUN_PY
from run_benchmarks.history.database import Database
from run_benchmarks.history.store import keep, seconds_of_a_round
from run_benchmarks.results.records import DrainRecord, Verdict
from run_benchmarks.state.journal import Journal, RoundEnded, RoundStarted, RunStarted
from run_benchmarks.state.run_lock import controlling
from tests.run_benchmarks.results.recorded_runs import KEY, a_run, on_disk

STYLE = re.compile(r"\x1b\[[0-9;]*m")  # of tables' heads


def on_a_terminal(words: Sequence[str], until: str = "", lock: Path | None = None) -> str:
    """What run.py prints on a terminal of 80 columns; with `lock` a controller works on that run `until` it says so."""
    mine, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "LINES": "40"}
    text = b""
    with controlling(lock) if lock is not None else nullcontext():
        child = subprocess.Popen(
            [sys.executable, str(RUN_PY), *words], stdout=its, stderr=its, stdin=its, env=environment
        )
        os.close(its)
        while until and until not in plain(text) and (piece := output_of(mine)):
            text += piece
    while piece := output_of(mine):
        text += piece
    os.close(mine)
    child.wait()
    return plain(text)


def output_of(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the end of a terminal
        return b""


def plain(text: bytes) -> str:
    return STYLE.sub("", text.decode(errors="replace").replace("\r", ""))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a case that passed and one that failed, whose reason controls a terminal."""
    made = a_run("run20261101000000", [100.0, 101.0])
    passed = made.record.cases[0]
    reason = "rank 3 of h1 was lost \x1b[31m" + "and nobody knows why " * 8
    failed = passed.model_copy(
        update={
            "name": "FAILED",
            "folder": "FAILED",
            "verdict": Verdict.FAIL,
            "reason": reason,
            "rounds": [],
            "attempts": [],
        }
    )
    drain = [DrainRecord(host="h1", reasons=["PAIRS round 1: its link is slow " * 4])]
    record = made.record.model_copy(update={"cases": [passed, failed], "drain": drain, "verdict": Verdict.FAIL})
    return on_disk(tmp_path, type(made)(folder=made.folder, record=record, rounds=made.rounds))


def test_show_fits_80_columns_says_what_failed_first_and_controls_no_terminal(folder: Path) -> None:
    text = on_a_terminal(["show", str(folder)])
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80, text
    assert "lost \\x1b[31m" in text and lines[0].startswith("run20261101000000: fail")
    assert (
        text.index("Take out of service") < text.index("\nFAILED ") < text.index("\nPAIRS ")
        and "100.5 samples/s" in text
    )
    assert max(map(len, on_a_terminal(["show", str(folder), "PAIRS"]).splitlines())) <= 80


def test_show_is_the_same_in_a_pipe_and_in_chinese(folder: Path) -> None:
    def piped(*words: str) -> str:
        return subprocess.run(
            [sys.executable, str(RUN_PY), "show", str(folder), *words], capture_output=True, text=True, check=True
        ).stdout

    assert KEY in piped() and "\x1b" not in piped()
    case = piped("PAIRS")
    assert "100.5" in case and "bert:pytorch, 4 hosts with 2 ranks each" in case
    assert "需停用的主机" in piped("--lang", "zh") and "失败" in piped("--lang", "zh")


def begun(folder: Path) -> Journal:
    """The journal of a run of two cases whose second one runs its second round of three."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder)
    journal.append(RunStarted(run_id=folder.name, pid=1, plan_digest="", cluster_conf="c", test_conf="t",
                              rounds={"FIRST": 1, "PAIRS": 3, "THIRD": 1}))  # fmt: skip
    for case, number in (("FIRST", 1), ("PAIRS", 1)):
        journal.append(RoundStarted(case=case, round=number, attempt=1, master_port=1, hosts=["h1"]))
        journal.append(RoundEnded(case=case, round=number, attempt=1, verdict=Verdict.PASS, reason=""))
    journal.append(RoundStarted(case="PAIRS", round=2, attempt=1, master_port=1, hosts=["h1"]))
    return journal


def test_the_time_left_is_that_of_runs_before_less_what_has_passed(tmp_path: Path) -> None:
    state = begun(tmp_path / "run20261102000000").read()
    now = state.open["PAIRS"].started.time_ms / 1000 + 40
    found = {row[0]: row[1:] for row in rows(state, {"PAIRS": 100.0, "FIRST": 9.0, "THIRD": 60.0}, now)}
    assert found["FIRST"] == ("1/1", "pass", "")
    assert found["PAIRS"] == ("1/3", "round 2 runs for 0:40", "2:40")
    assert found["THIRD"] == ("0/1", "waits", "1:00") and found["all"] == ("2/5", "", "3:40")
    late = {row[0]: row[3] for row in rows(state, {"PAIRS": 100.0}, now + 1000)}
    assert late == {"FIRST": "", "PAIRS": "1:40", "THIRD": "?", "all": "?"}, "nobody knows how long THIRD takes"


def test_the_time_left_of_all_is_that_until_the_last_host_is_free(tmp_path: Path) -> None:
    """By a clock that moves from one end of a case to the next: a wave begins once the one before it is over."""
    rounds, typical = {"A": 3, "B": 1, "C": 2, "D": 4}, {"A": 10.0, "B": 50.0, "C": 25.0, "D": 7.0}
    waves = [["A", "B"], ["D"], ["C"]]
    journal = Journal(tmp_path)
    journal.append(RunStarted(run_id="run1", pid=1, plan_digest="", cluster_conf="c", test_conf="t",
                              rounds=rounds, waves=waves))  # fmt: skip
    clock, waiting, running = 0.0, [*waves], dict[str, float]()
    while waiting or running:
        if not running:
            running = {name: clock + rounds[name] * typical[name] for name in waiting.pop(0)}
        clock = min(running.values())
        running = {name: end for name, end in running.items() if end > clock}
    assert rows(journal.read(), typical, 0.0)[-1][3] == f"{clock // 60:.0f}:{clock % 60:02.0f}" == "2:08"


def test_the_answer_to_attach_is_of_that_run_even_if_its_folder_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run20261102000000"
    begun(folder)

    def follow(*_: object) -> int:
        shutil.rmtree(folder)
        return 1

    monkeypatch.setattr(attaching, "follow", follow)
    assert cli.PROGRAM.main(["attach", str(folder), "--json"]) == 1
    ended = json.loads(capsys.readouterr().out)
    assert (ended["run_id"], ended["state"]) == (folder.name, "no journal")


def test_attach_shows_all_cases_below_the_log_on_a_terminal_and_the_log_alone_in_a_pipe(tmp_path: Path) -> None:
    run = a_run("run20261101000000", [100.0, 101.0])
    rounds = [each.model_copy(update={"finished_ms": 100_000}) for each in run.rounds["PAIRS"]]
    database = Database(f"sqlite:///{tmp_path / 'history.sqlite'}")
    keep(database, type(run)(folder=run.folder, record=run.record, rounds={"PAIRS": rounds}), "0" * 8)
    assert seconds_of_a_round(database, ["PAIRS", "NONE"]) == {"PAIRS": 100.0}
    database.close()
    folder = tmp_path / "run20261102000000"
    begun(folder)
    (folder / "run.log").write_text("the log of the run\n")
    text = on_a_terminal(["attach", str(folder)], until="round 2 runs for", lock=folder)
    assert "the log of the run" in text and "round 2 runs for" in text
    assert re.search(r"3:([01]\d|20)", text), "two rounds of 100 s, less some seconds"
    piped = subprocess.run([sys.executable, str(RUN_PY), "attach", str(folder)], capture_output=True, text=True)
    assert piped.stdout == "the log of the run\n" and piped.returncode == 1, "its controller was killed"
    document = subprocess.run(
        [sys.executable, str(RUN_PY), "attach", str(folder), "--json"], capture_output=True, text=True
    )
    ended = json.loads(document.stdout)
    assert (ended["run_id"], ended["state"]) == (folder.name, "killed") and ended["rounds"]
    assert document.stderr == "the log of the run\n" and document.returncode == 1
