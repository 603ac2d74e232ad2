"""The tables of docs/data/performance.csv, and the command that writes them."""

import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.performance import __main__ as command
from tests.performance.__main__ import Measure
from tests.performance.peak import own_peak, run_sound
from tests.performance.rows import Row
from tests.performance.table import as_text, describe_machine, read_tables, tabulated, write_tables

DAY = datetime.date(2026, 11, 21)
ROW = Row(what="a | b", measured="1.5 s", baseline="3 s", ratio=0.5, goal="half", met=True)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "performance.csv"
    path.write_text(as_text([]))
    monkeypatch.setattr(command, "FILE", path)
    return path


def measured(rows: Sequence[Row], *, smoke: bool = False) -> list[Row]:
    return list(rows)


def returning(*rows: Row) -> Measure:
    return partial(measured, rows)


def peak_with(bytes_held: int, *, smoke: bool = False) -> list[Row]:
    """The peak memory of the process that measures, which holds so many bytes meanwhile."""
    held = bytearray(bytes_held)
    held[::4096] = b"1" * len(held[::4096])
    return [replace(ROW, ratio=float(own_peak()))]


def fail(*, smoke: bool = False) -> list[Row]:
    raise RuntimeError("no network")


def test_tables_come_back_as_written(file: Path) -> None:
    tables = {name: tabulated(name, [ROW, ROW], "a CPU, 2 cores", today=DAY) for name in ("first", "second")}
    write_tables(file, tables)
    assert read_tables(file) == tables
    row = "a | b,1.5 s,3 s,0.50,half,yes"
    assert file.read_text().splitlines()[1] == f'first,2026-11-21,"a CPU, 2 cores",{row}'


@pytest.mark.parametrize("text", ["", "measurement,date\n", as_text([]).replace("goal,met", "met,goal")])
def test_a_file_with_other_columns_is_refused_before_measuring(
    file: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": fail})
    file.write_text(text)
    assert command.main([]) == 2
    assert "performance.csv: expected the columns" in capsys.readouterr().err and file.read_text() == text


def test_one_measurement_alone_leaves_the_others_tables(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": returning(ROW), "second": returning(ROW, ROW)})
    assert command.main([]) == 0
    before = read_tables(file)
    monkeypatch.setattr(
        command, "measurements", lambda: {"first": returning(replace(ROW, measured="2 s")), "second": fail}
    )
    assert command.main(["first"]) == 0
    after = read_tables(file)
    assert after["second"] == before["second"] and after["first"] != before["first"]


def test_a_failed_measurement_keeps_its_table_and_shows_in_the_exit_code(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": returning(ROW), "second": returning(ROW)})
    assert command.main([]) == 0
    before = read_tables(file)
    monkeypatch.setattr(command, "measurements", lambda: {"first": fail, "second": returning(ROW, ROW)})
    assert command.main([]) == 1
    after = read_tables(file)
    assert after["first"] == before["first"] and after["second"] != before["second"]
    captured = capsys.readouterr().err
    assert "no network" in captured and "failed: first" in captured


def test_an_unknown_measurement_is_refused_with_the_known_ones(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": fail})
    assert command.main(["frist"]) == 2
    assert "frist; known: first" in capsys.readouterr().err


def test_measurements_are_found_by_their_function() -> None:
    found = command.measurements()
    assert not {"rows", "table", "test_table"} & set(found)
    assert all(callable(measure) for measure in found.values())


def test_the_machine_is_named() -> None:
    assert " cores, " in describe_machine() and "Linux" in describe_machine()


def test_the_file_holds_tables_of_measurements_that_there_are() -> None:
    assert set(read_tables(command.FILE)) <= set(command.measurements())


def test_a_measurement_sees_no_memory_of_the_one_before(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    much = 300_000_000
    known = {"first": partial(peak_with, much), "second": partial(peak_with, 0)}
    monkeypatch.setattr(command, "measurements", lambda: known)
    assert command.main([]) == 0
    ratios = [float(table[-1]["ratio"]) for table in read_tables(file).values()]
    assert ratios[0] > much > ratios[1]


def test_a_measured_command_keeps_its_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "imported.py").touch()
    run_sound([sys.executable, "-c", "import imported"], tmp_path)
    assert list(tmp_path.glob("__pycache__/imported.*.pyc"))
