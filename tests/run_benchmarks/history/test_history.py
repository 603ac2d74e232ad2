"""The history: every run once, in SQLite and a real PostgreSQL; two writers; what a series and a host tell."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.console.language import Words
from run_benchmarks.errors import HistoryError
from run_benchmarks.history import recording
from run_benchmarks.history.database import Database
from run_benchmarks.history.page import write_page
from run_benchmarks.history.recording import default_url
from run_benchmarks.history.store import host_history, keep, means_of_runs, series
from run_benchmarks.history.tables import metadata
from run_benchmarks.history.view import told
from run_benchmarks.results.loading import LoadedRun
from tests.browser import browser, needs_browser
from tests.pages import charts_of
from tests.postgres import postgres, programs
from tests.run_benchmarks import calling
from tests.run_benchmarks.export.test_formats import HOST
from tests.run_benchmarks.local_run import LIGHT_ONE, Run
from tests.run_benchmarks.results.recorded_runs import KEY, a_run, on_disk

OWNER = "0" * 8


def run_of(number: int, value: float, code: str = "1" * 64) -> LoadedRun:
    """A run of that number in the order of runs."""
    run = a_run(f"run202611{1 + number // 24:02}{number % 24:02}0000", [value - 0.1, value, value + 0.1])
    changed = {"started_ms": 1_790_000_000_000 + number * 3_600_000, "code_digest": code}
    return LoadedRun(folder=run.folder, record=run.record.model_copy(update=changed), rounds=run.rounds)


def sinking() -> list[LoadedRun]:
    """24 runs whose level falls by 8 % in the middle, where the code changed."""
    wobble = [0.4, -0.3, 0.1, -0.5, 0.2, 0.5, -0.1, -0.4, 0.3, 0.0]
    return [
        run_of(number, (100.0 if number < 12 else 92.0) + wobble[number % 10], str(number // 12) * 64)
        for number in range(24)
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.sqlite'}"
    if programs() is None:
        pytest.skip("no PostgreSQL (apt-get install postgresql)")
    return str(request.getfixturevalue("server"))


def counts(database: Database) -> dict[str, int]:
    with database.reading() as connection:
        return {name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in metadata.tables}


def test_a_run_is_kept_once_and_the_tables_are_what_the_migrations_make(url: str) -> None:
    database = Database(url)
    for _ in range(2):
        for number in range(3):
            keep(database, run_of(number, 100.0), OWNER)
    found = counts(database)
    assert (found["runs"], found["cases"], found["metrics"]) == (3, 3, 3)
    keep(database, run_of(0, 100.0), "f" * 8)
    assert counts(database)["runs"] == 4, "another result folder has a run of the same second"
    with database._engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    kept = series(database, "PAIRS")
    assert (kept.metric, kept.better) == (KEY, "higher") and kept.values[0] == pytest.approx(100.0)
    database.close()


def test_two_writers_at_once_lose_no_run(url: str) -> None:
    failed: list[BaseException] = []

    def write(owner: str) -> None:
        database = Database(url, busy_seconds=60)
        try:
            for number in range(8):
                keep(database, run_of(number, 100.0), owner)
        except HistoryError as error:
            failed.append(error)
        finally:
            database.close()

    writers = [threading.Thread(target=write, args=(each * 8,)) for each in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    database = Database(url)
    assert failed == []
    with database.reading() as connection:
        asked = text("SELECT count(*) FROM runs WHERE owner IN ('aaaaaaaa', 'bbbbbbbb')")
        assert connection.execute(asked).scalar_one() == 16
    database.close()


def test_a_reader_sees_one_state_whoever_writes(url: str) -> None:
    database, asked = Database(url), text("SELECT count(*) FROM runs")
    keep(database, run_of(0, 100.0), "e" * 8)
    with database.reading() as connection:
        before = connection.execute(asked).scalar_one()
        with contextlib.suppress(HistoryError):  # SQLite's writer waits for the reader
            keep(Database(url, busy_seconds=0.1), run_of(1, 100.0), "e" * 8)
        assert connection.execute(asked).scalar_one() == before
    database.close()


def test_text_of_a_host_that_a_database_does_not_take_is_kept_without_that(url: str) -> None:
    run = run_of(0, 100.0)
    case = run.record.cases[0].model_copy(update={"joules": {"a\0" + "b" * 300 + end: 1.0 for end in "xy"}})
    database = Database(url)
    hostile = LoadedRun(folder=run.folder, record=run.record.model_copy(update={"cases": [case]}), rounds=run.rounds)
    for _ in range(2):
        keep(database, hostile, "d" * 8 + "\0" * 20)
    with database.reading() as connection:
        names = connection.scalars(text("SELECT name FROM metrics WHERE name LIKE 'joules%'")).all()
    assert names == ["joules a\ufffd" + "b" * 191]
    database.close()


def test_values_in_a_unit_of_before_are_no_part_of_a_series_or_a_spread(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'history.sqlite'}")
    for number in range(4):
        keep(database, run_of(number, 100.0 if number > 1 else 0.1), OWNER)
    with database.writing() as connection:
        connection.execute(text("UPDATE metrics SET unit = 'kilosamples/s' WHERE value < 1"))
        (kind,) = connection.scalars(text("SELECT DISTINCT kind FROM cases")).all()
    found = series(database, "PAIRS")
    assert found.unit == "samples/s" and found.values == [100.0, 100.0] and len(found.points) == 4
    for unit, means in (("samples/s", [[100.0, 100.0]]), ("kilosamples/s", [pytest.approx([0.1, 0.1])])):
        assert means_of_runs(database, "PAIRS", kind, {KEY: unit}, [])[KEY] == means


def test_a_rebuild_goes_on_after_a_folder_that_holds_anything(tmp_path: Path) -> None:
    run = run_of(1, 100.0)
    no_tests = run.record.cases[0].model_copy(update={"model": "base", "config": {"tests": 9}})
    made: list[dict[str, Any]] = [{}, {"hosts": [HOST, HOST]}, {"cases": [no_tests]}, {}]
    for number, changed in enumerate(made):
        record = run.record.model_copy(update={**changed, "run_id": f"run2026110100000{number}"})
        on_disk(tmp_path, LoadedRun(folder=run.folder, record=record, rounds=run.rounds))
    url = default_url(tmp_path)
    found = dict(recording.rebuild(tmp_path, OWNER, url))
    assert {name for name, problem in found.items() if problem} == {"run20261101000002"}
    assert "'int'" in found["run20261101000002"]
    assert len(series(Database(url), "PAIRS").points) == 3, "also of the run that has a host twice"


def test_a_user_without_a_home_folder_is_told_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    said = recording.record(on_disk(tmp_path, run_of(0, 100.0)), OWNER, f"sqlite:///{tmp_path}/no/history.sqlite")
    assert "nor could it be kept elsewhere: Could not determine home directory" in said


def test_a_writer_waits_for_another_one_and_gives_up_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    keep(Database(f"sqlite:///{file}"), run_of(0, 100.0), OWNER)
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match=r"history\.sqlite: database is locked"):
            keep(Database(f"sqlite:///{file}", busy_seconds=0.2), run_of(1, 100.0), OWNER)


def test_a_history_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    keep(Database(f"sqlite:///{file}"), run_of(0, 100.0), OWNER)
    with sqlite3.connect(file) as other:
        other.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(HistoryError, match=r"later version \(9999\)"):
        keep(Database(f"sqlite:///{file}"), run_of(1, 100.0), OWNER)
    with pytest.raises(HistoryError, match="version 9999 of the tables"):
        series(Database(f"sqlite:///{file}"), "PAIRS")


def test_a_change_is_marked_with_what_changed_then(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'history.sqlite'}")
    for run in sinking():
        keep(database, run, OWNER)
    found = told(series(database, "PAIRS"), Words())
    (change,) = found.changes
    assert change.run.run_id == "run20261101120000" and change.is_worse
    assert change.point.percent == pytest.approx(-8, abs=0.5)
    assert [name for name, _, _ in change.provenance] == ["code"]
    assert found.trend.state == "steady"
    for number in (24, 25):
        keep(database, run_of(number, 80.0, "1" * 64), OWNER)
    suspected = told(series(database, "PAIRS"), Words())
    assert "suspected since run20261102000000; 3 more runs would tell" in suspected.sentence
    assert "run --case PAIRS" in suspected.sentence


def conf(folder: Path, **settings: str) -> Path:
    file = folder / "test_conf.py"
    file.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    return file


def test_the_command_rebuilds_from_folders_names_a_damaged_one_and_shows_the_trend(tmp_path: Path) -> None:
    root = tmp_path / "result"
    folders = [on_disk(root, run) for run in sinking()]
    (folders[3] / "PAIRS" / "round1" / "round.json").write_text("{")
    file = conf(tmp_path, FLAGPERF_LOG_PATH_HOST=str(root))

    def call(*words: str) -> tuple[int, str]:
        said = calling.call("--test-conf", str(file), "history", *words)
        return said.exit_code, said.output

    code, said = call("--rebuild", "PAIRS")
    assert code == 1 and "left out" in said and "round1/round.json" in said
    assert "run20261101120000: from" in said and "worse" in said and "code: 000" in said
    assert "▁" in said and KEY in said
    assert [line.split()[0] for line in call()[1].splitlines()[2:]] == ["PAIRS"], "a row a case"
    call("PAIRS", "--output", str(tmp_path / "english.html"))
    code, said = call("PAIRS", "--lang", "zh", "--output", str(tmp_path / "page.html"))
    assert "页面" in said and len(charts_of((tmp_path / "page.html").read_text())) == 1
    assert code == 0 and "变差" in said and "运行" in said
    piped = calling.call("--test-conf", str(file), "history", "PAIRS", "--output", "-")
    assert piped.stdout == (tmp_path / "english.html").read_text() and KEY in piped.stderr, "the page, and nothing else"
    for words, expected in (
        (("PAIR",), "did you mean 'PAIRS'"),
        (("PAIRS", "--metric", "throughput"), "expected one that the case has"),
        (("--host", "h9"), "expected a host of a run"),
    ):
        failed = calling.call("--test-conf", str(file), "history", *words)
        assert expected in failed.complaint, words


@needs_browser
def test_the_page_draws_the_series_its_levels_and_its_change_and_runs_nothing_of_a_name(tmp_path: Path) -> None:
    page, database = tmp_path / "page.html", Database(f"sqlite:///{tmp_path / 'history.sqlite'}")
    for run in sinking():
        evil = run.record.model_copy(update={"runtime": "<img src=x onerror=alert(1)>"})
        keep(database, LoadedRun(folder=run.folder, record=evil, rounds=run.rounds), OWNER)
    write_page(page, [told(series(database, "PAIRS"), Words())], Words("zh"))
    (chart,) = charts_of(page.read_text(encoding="utf-8"))
    points, levels, change = chart["panels"][0]["series"]
    assert points["y"] == [pytest.approx(value, rel=1e-4) for value in series(database, "PAIRS").values]
    assert levels["y"][0] > levels["y"][-1] and levels["y"].index(levels["y"][-1]) == 12
    assert change["x"] == [13] and change["tone"] == "bad"
    with browser() as opened:
        opened.open(page, width=400)
        assert opened.draw_all() == 1 and opened.complaints == [] and len(opened.requests) == 1
        assert opened.value("document.querySelectorAll('img').length") == 0
        assert opened.value("document.documentElement.scrollWidth") <= 400


def test_the_record_of_a_host_counts_its_states_and_its_places_among_the_others(tmp_path: Path) -> None:
    from tests.run_benchmarks.history.device_runs import device_run

    database = Database(f"sqlite:///{tmp_path / 'history.sqlite'}")
    for number in range(10):
        slow = {"h3": 80.0} if number else {}
        keep(database, device_run(number, {f"h{host}": 100.0 + host for host in range(40)} | slow), OWNER)
    found = host_history(database, "h3")
    (line,) = found.lines
    assert (line.case, line.metric, line.unit) == ("DEVICES", "matmul_bf16", "TFLOPS")
    assert (line.worst, line.runs, line.latest) == (9, 10, 80.0)
    assert found.states == {"degraded": 9, "healthy": 1} and found.last_reason == "slow"
    assert series(database, "DEVICES", host="h3").values == [103.0, *[80.0] * 9]


def test_a_database_that_hangs_hangs_no_run_and_the_run_is_kept_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = on_disk(tmp_path / "result", run_of(0, 100.0))
    file = tmp_path / "history.sqlite"
    lock = subprocess.Popen(
        [sys.executable, "-c", f"import sqlite3, time; c = sqlite3.connect({str(file)!r}, isolation_level=None); "
         "c.execute('BEGIN EXCLUSIVE'); print('held', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert lock.stdout is not None and lock.stdout.readline() == b"held\n"
        os.kill(lock.pid, signal.SIGSTOP)
        said = recording.record(folder, OWNER, f"sqlite:///{file}", seconds=3.0)
    finally:
        lock.kill()
        lock.wait()
    assert "did not answer within 3 s" in said and "history --rebuild" in said
    kept = tmp_path / "state" / "clusterdyno" / "history.sqlite"
    assert str(kept) in said
    assert series(Database(f"sqlite:///{kept}"), "PAIRS").values == [pytest.approx(100.0)]
    assert recording.record(folder, OWNER, f"sqlite:///{file}") == "", "and it takes the next one"


def test_what_a_child_warns_of_as_it_ends_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers and libraries write to stderr as the interpreter ends; without an answer it says why there is none."""
    (tmp_path / "child.py").write_text(
        "import atexit, sys\nfrom run_benchmarks.history.recording import answer_parent\n"
        "atexit.register(lambda: print('closed late', file=sys.stderr))\nanswer_parent(lambda asked: asked['n'] / 2)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert recording.ask_a_child("child", {"n": 5}, 60.0) == (2.5, "")
    assert recording.ask_a_child("no_child", {}, 60.0)[1].endswith("No module named no_child")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_run_that_ends_is_in_the_history_and_passes_without_one(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", f"{LIGHT_ONE}HISTORY = None\n", root)
    done = subprocess.run(run.argv, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "not in the history" not in done.stdout, done.stdout + done.stderr
    kept = series(Database(recording.default_url(run.folder / "logs")), "ONE")
    assert run.result is not None and [point.run_id for point in kept.points] == [run.result.name]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    nowhere = f"sqlite:///{tmp_path}/nowhere/history.sqlite"
    without = subprocess.run([*run.argv, "--set", f"HISTORY={nowhere!r}"], capture_output=True, text=True, timeout=200)
    assert without.returncode == 0 and "unable to open database file" in without.stdout, without.stdout
    assert len(series(Database(recording.fallback_url()), "ONE").points) == 1


def test_a_password_stands_in_no_message_and_on_no_command_line(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, run_of(0, 100.0))
    asked = {"folder": str(folder), "owner": OWNER, "url": "postgresql+psycopg://me:geheim@localhost:1/none"}
    done = subprocess.run(
        [sys.executable, "-m", recording.__name__], cwd=ROOT, input=json.dumps(asked), capture_output=True, text=True
    )
    assert done.returncode == 1 and "geheim" not in done.stdout + done.stderr
    assert "me:***@localhost" in done.stdout
    with pytest.raises(HistoryError, match="history") as caught:
        Database("nosuch://me:geheim@localhost/none")
    assert "geheim" not in str(caught.value)
