"""A flat sequence of rows becomes blocks: always the same rows when expanded, and few of them where they repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import samples
from workloads.library import Block, CommType, LogItem, Workload
from workloads.rows.calls import Call
from workloads.rows.conversion import fold_items, item_of, rows_of
from workloads.rows.folding import MOST_WORK, _Sweep, fold
from workloads.rows.ranks import Ranks


@dataclass(frozen=True)
class Mark:
    """A row that is a letter and two numbers."""

    kind: str
    layer: int | None = None
    batch: int | None = None

    def shifted(self, offset: tuple[int, int]) -> Mark:
        layer = None if self.layer is None else self.layer + offset[0]
        return replace(self, layer=layer, batch=None if self.batch is None else self.batch + offset[1])


def folded(rows: Sequence[Mark]) -> Block[Mark]:
    kinds = [(row.kind, row.layer is None, row.batch is None) for row in rows]
    return fold(rows, kinds, [row.layer for row in rows], [row.batch for row in rows])


def stored(rows: Block[Mark] | Block[LogItem]) -> int:
    return sum(stored(part) if isinstance(part, Block) else 1 for part in rows.parts)


NUMBERS = st.none() | st.integers(0, 3)
FLAT = st.lists(st.builds(Mark, st.sampled_from("abc"), NUMBERS, NUMBERS), max_size=12)


@st.composite
def nested(draw: st.DrawFn, depth: int = 3) -> list[Mark]:
    """Loops within loops, whose turns raise the numbers, with surprises between them."""
    if depth == 0:
        return draw(FLAT)
    body = [row for _ in range(draw(st.integers(1, 2))) for row in draw(nested(depth - 1))]
    step = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    turns = draw(st.integers(1, 4))
    rows = [row.shifted((step[0] * turn, step[1] * turn)) for turn in range(turns) for row in body]
    return [*draw(FLAT), *rows] if draw(st.booleans()) else rows


@settings(max_examples=len(samples(50, 2000)), deadline=None)
@given(nested())
def test_what_is_folded_expands_to_itself(rows: list[Mark]) -> None:
    block = folded(rows)
    assert list(block) == rows and len(block) == len(rows) and stored(block) <= len(rows)
    assert sum(block.tally().values()) == len(rows) == sum(block.tally_kinds().values())
    if rows:
        assert block.tally() == Block(rows).tally()


@pytest.mark.parametrize(
    "text", ["ab" * 40, "aab" * 30 + "b" * 9, "abcabcabd" * 20, "abaab" * 13, "a", "", "abcd" * 3 + "e" + "abcd" * 3]
)
def test_letters_come_back(text: str) -> None:
    assert "".join(row.kind for row in folded([Mark(letter) for letter in text])) == text


@pytest.mark.parametrize("layers", [(3, 1, 2, 3), (1, 1, 2, 3, 0), (0, 1, 2, 4, 5, 6)])
def test_layers_that_do_not_go_on_evenly_come_back(layers: Sequence[int]) -> None:
    rows = [Mark("a", layer) for layer in layers]
    assert list(folded(rows)) == rows


def test_nested_loops_are_stored_once() -> None:
    """Iterations of micro-batches of layers: forward up, backward down, and a step whose rows have no numbers."""
    rows = [
        row
        for _ in range(5)
        for row in (
            *(
                Mark(kind, layer, batch)
                for batch in range(7)
                for kind, layer in (
                    ("embed", None), *((kind, layer) for layer in range(9) for kind in "fgf"),
                    *((kind, 8 - layer) for layer in range(9) for kind in "xyx"), ("send", None),
                )
            ),
            Mark("step"),
            Mark("end"),
        )
    ]  # fmt: skip
    block = folded(rows)
    assert list(block) == rows and stored(block) == 10


def test_the_work_is_bounded_on_sequences_that_resist(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    original = _Sweep.run

    def counted(sweep: _Sweep[Mark], longest: int) -> object:
        looked_at.append(len(sweep.level))
        return original(sweep, longest)

    monkeypatch.setattr(_Sweep, "run", counted)
    bits = [bin(place).count("1") % 2 for place in range(4097)]
    for rows in ([Mark(str(b - a)) for a, b in pairwise(bits)], [Mark(str(bit)) for bit in bits]):
        looked_at.clear()
        assert list(folded(rows)) == rows
        assert sum(looked_at) <= (MOST_WORK + 2) * len(rows)


def test_a_block_is_cut_and_shifted_with_its_numbers() -> None:
    block = Block([Mark("a", 1, 0), Block([Mark("b", 0, None)], 2, (1, 0))], 3, (10, 1))
    assert list(block.repetitions(1, 3)) == list(block)[3:]
    assert list(block.shifted((100, 5)))[4] == Mark("b", 110, None)
    assert block.tally()[Mark("b", 11)] == 1 and block.tally_kinds()[Mark("b", 0)] == 6


def op(**changes: object) -> Call:
    values: dict[str, object] = {
        "comm_type": CommType.all_reduce, "group": "tp", "ranks": Ranks.of(range(8)), "dtype": "bfloat16", "bytes": 64,
        "phase": "forward", "overlap": 0,
    }  # fmt: skip
    return Call(**(values | changes))  # type: ignore[arg-type]


def test_traced_calls_become_epochs_of_rows() -> None:
    ops = [op(phase="init")]
    for _ in range(6):
        for batch in range(4):
            for layer in range(3):
                module = f"decoder.layers.{layer + 5}.mlp"
                ops.append(op(module=module, micro_batch=batch, overlap=2))
        ops.append(op(phase="step", group="dp", overlap=-1))
    rows = rows_of(ops, [1, *(1 + 13 * done for done in range(1, 7))])
    assert stored(rows) == 5
    workload = Workload(rows)
    assert workload.iterations == 6 and len(workload.epoch(0)) == 2
    for epoch in (1, 4, 6):
        assert list(workload.epoch(epoch))[:-1] == [
            item_of(each) for each in ops[1 + 13 * (epoch - 1) : 1 + 13 * epoch]
        ]
    assert next(iter(workload.epoch(3))).overlap == 2 and list(workload.epoch(3))[-2].overlap == -1
    assert list(fold_items(list(workload))) == list(workload)
    assert workload.totals("comm_group")[("tp_group",)].rows == 73


def test_a_call_that_breaks_a_definition_is_named() -> None:
    with pytest.raises(ValueError, match="op 1: group is 'xp'"):
        rows_of([op(), op(group="xp")])
    with pytest.raises(ValueError, match="not ascending"):
        rows_of([op()], [1, 0])
    with pytest.raises(ValueError, match="at most 1 ops"):
        rows_of([op()], [0, 5])
