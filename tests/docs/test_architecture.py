"""docs/explanation/architecture.md: its picture is what its source draws, its table is what the code says."""

import dataclasses
from itertools import combinations

import pytest

from tests.docs import drawing, packages
from tests.docs.drawing import Box

NARROW, WIDE = set("iljft.,;:'|/()[] "), set("mwMW%@")


def test_the_picture_is_what_its_source_draws() -> None:
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.svg(drawing.read()), f"run `{packages.COMMAND}`"


def estimated_width(words: str, size: float) -> float:
    """Pixels of a text in a wide sans-serif font such as DejaVu Sans."""
    return size * sum(0.36 if letter in NARROW else 0.95 if letter in WIDE else 0.62 for letter in words)


def test_every_text_fits_into_its_box() -> None:
    for box in drawing.read().box:
        _, _, width, height = box.at
        for words, size in [(box.title, drawing.TITLE_SIZE * 1.1), *((line, drawing.LINE_SIZE) for line in box.lines)]:
            assert estimated_width(words, size) <= width - 4, words
        assert 21 + (17 * len(box.lines) + 8 if box.lines else 0) <= height, box.title


def test_no_label_and_no_box_lies_over_another() -> None:
    whole = drawing.read()
    inner = [box.at for box in whole.box if box.kind in ("room", "file")]
    labels = []
    for arrow in whole.arrow:
        if arrow.label:
            width = estimated_width(arrow.label, drawing.LINE_SIZE)
            labels.append((arrow.label_at[0] - width / 2, arrow.label_at[1] - 11, width, 14.0))
    for one, other in combinations([*inner, *labels], 2):
        assert not overlap(one, other), (one, other)


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two rectangles (x, y, width, height) share a point."""
    return all(one[i] < other[i] + other[i + 2] and other[i] < one[i] + one[i + 2] for i in (0, 1))


def test_a_mistake_in_the_source_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        Box.model_validate({"at": [0, 0, 10, 10], "kind": "room", "title": "x", "colour": "red"})


def test_the_table_says_what_the_code_says() -> None:
    table = packages.written(packages.TABLE.read_text(encoding="utf-8"))
    found = packages.differences(table, packages.measured())
    assert not found, f"run `{packages.COMMAND}`: {found}"


def test_the_table_of_rooms_says_what_the_code_says() -> None:
    table = packages.ROOMS.read_text(encoding="utf-8")
    assert table == packages.rooms_table(table), f"run `{packages.COMMAND}`"


def test_every_room_of_the_controller_is_in_the_picture() -> None:
    shown = {box.title.rstrip("/") for box in drawing.read().box}
    rooms = {name.removeprefix("run_benchmarks.") for name in packages.measured() if name.startswith("run_benchmarks.")}
    assert rooms - shown == {"config"}, "config/ is the file box"


def test_what_is_no_longer_true_is_named() -> None:
    code = packages.measured()
    plan = code["run_benchmarks.plan"]
    assert packages.written(packages.table(code)).keys() == code.keys()
    changed = {
        **code,
        "run_benchmarks.plan": dataclasses.replace(plan, imports=(*plan.imports, "hosts")),
        "vendors": dataclasses.replace(code["vendors"], lines=3 * code["vendors"].lines),
        "run_benchmarks.rooms": plan,
    }
    del changed["monitors"]
    said = packages.differences(code, changed)
    assert [sentence.partition(":")[0] for sentence in said] == [
        "monitors",
        "run_benchmarks.plan",
        "run_benchmarks.rooms",
        "vendors",
    ]
    assert "hosts" in said[1]
