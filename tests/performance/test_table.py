"""The tables of docs/reference/performance.md, and the command that writes them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.performance import __main__ as command
from tests.performance.__main__ import Measure
from tests.performance.peak import own_peak
from tests.performance.rows import Row
from tests.performance.table import BEGIN, END, describe_machine, read_blocks, render_block, replace_blocks

DAY = datetime.date(2026, 11, 21)
ROW = Row(what="a | b", measured="1.5 s", baseline="3 s", ratio=0.5, goal="half", met=True)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "performance.md"
    file.write_text(f"# Title\n\n{BEGIN}\n{END}\n\nThe end.\n")
    monkeypatch.setattr(command, "PAGE", file)
    return file


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


def test_a_block_is_a_markdown_table_with_date_and_machine() -> None:
    block = render_block("orchestration", [ROW], "a CPU, 2 cores", today=DAY).splitlines()
    assert block[:2] == ["<!-- performance:orchestration -->", "**orchestration**, 2026-11-21, a CPU, 2 cores"]
    assert block[-1] == "| a \\| b | 1.5 s | 3 s | 0.50 | half | yes |"
    assert block[-3].count("|") == block[-2].count("|") == 7


def test_blocks_come_back_as_written_and_the_rest_stays(page: Path) -> None:
    blocks = {name: render_block(name, [ROW], "machine, 2 cores", today=DAY) for name in ("first", "second")}
    blocks["third"] = render_block("third", [ROW], "another", today=DAY)
    replace_blocks(page, blocks)
    assert read_blocks(page) == blocks
    assert page.read_text().count("machine, 2 cores") == page.read_text().count(", another\n") == 1
    replace_blocks(page, blocks)
    text = page.read_text()
    assert read_blocks(page) == blocks
    assert text.startswith("# Title\n\n" + BEGIN) and text.endswith(END + "\n\nThe end.\n")


@pytest.mark.parametrize("text", ["no markers", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_refused_before_measuring(
    page: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": fail})
    page.write_text(text)
    assert command.main([]) == 2
    assert "performance.md" in capsys.readouterr().err and page.read_text() == text


def test_one_measurement_alone_leaves_the_others_tables(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": returning(ROW), "second": returning(ROW, ROW)})
    assert command.main([]) == 0
    before = read_blocks(page)
    monkeypatch.setattr(command, "measurements", lambda: {"first": returning(), "second": fail})
    assert command.main(["first"]) == 0
    after = read_blocks(page)
    assert after["second"] == before["second"] and after["first"] != before["first"]


def test_a_failed_measurement_keeps_its_table_and_shows_in_the_exit_code(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "measurements", lambda: {"first": returning(ROW), "second": returning(ROW)})
    assert command.main([]) == 0
    before = read_blocks(page)
    monkeypatch.setattr(command, "measurements", lambda: {"first": fail, "second": returning(ROW, ROW)})
    assert command.main([]) == 1
    after = read_blocks(page)
    assert after["first"] == before["first"] and after["second"] != before["second"]
    captured = capsys.readouterr().err
    assert "no network" in captured and "failed: first" in captured


def test_an_unknown_measurement_is_refused_with_the_known_ones(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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


def test_the_page_holds_tables_of_measurements_that_there_are() -> None:
    assert set(read_blocks(command.PAGE)) <= set(command.measurements())


def test_a_measurement_sees_no_memory_of_the_one_before(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    much = 300_000_000
    known = {"first": partial(peak_with, much), "second": partial(peak_with, 0)}
    monkeypatch.setattr(command, "measurements", lambda: known)
    assert command.main([]) == 0
    ratios = [float(block.splitlines()[-1].split(" | ")[3]) for block in read_blocks(page).values()]
    assert ratios[0] > much > ratios[1]
