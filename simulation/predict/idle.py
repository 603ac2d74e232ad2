"""Finds the columns of a job that change nothing of what is predicted of it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple

from common.errors import InputProblems
from simulation.predict.iteration import predict
from simulation.predict.job_table import CP_WAYS, FLAGS, KEYS, RECOMPUTE, VALUE_WORDS, job_of
from simulation.predict.machine import Machine
from simulation.predict.pieces import PieceTimes

MOST_TRIED = 100
"""Layouts that a column is tried in: one without effect takes three predictions more of each."""
_OF_NOTES = ("name", "max_position_embeddings")
"""Columns that say which job it is, and how far its positions reach, of which notes tell; no figure changes by them."""
NAMES = (*_OF_NOTES, "gpu")
_OTHER_WORDS: Mapping[str, Sequence[str]] = {
    **{key: tuple(words) for key, words in VALUE_WORDS.items()}, "recompute": RECOMPUTE, "cp_comm": CP_WAYS,
    "precision": ("bf16", "fp8"), "framework": ("Megatron", "torch"), "attention": ("cuDNN", "flash"),
}  # fmt: skip
Row = Mapping[str, str]


class Tried(NamedTuple):
    """In how many layouts a column was tried, and how many have it; fewer than all are a sample."""

    tried: int
    layouts: int


def idle_columns(keys: Sequence[str], rows: Sequence[Row], figures: Callable[[Row], object]) -> dict[str, Tried]:
    """Of the columns `keys` those that change nothing: in no layout does it change a figure if one is left out, or says
    another word, or twice the number. Rows that differ in names alone are one layout; of more than MOST_TRIED that
    have a column as many decide (`_sample`).

    An empty cell and a 0, which ask for nothing, are left out. figures: of a row; a value that they refuse (by
    InputProblems) is checked against others, and has an effect.
    """
    known: dict[int, object] = {}
    layouts = _layouts(rows)

    def is_idle_in(key: str, at: int) -> bool:
        if at not in known:
            known[at] = figures(rows[at])
        try:
            return all(figures({**rows[at], key: value}) == known[at] for value in _others(key, rows[at][key]))
        except InputProblems:
            return False

    found = {}
    for key in _without(NAMES, keys):
        given = {at: its for at, its in layouts.items() if is_asked(its.get(key))}
        tried = _sample(given, Random(key))
        if tried and all(is_idle_in(key, at) for at in tried):
            found[key] = Tried(len(tried), len(given))
    return found


def _without(left_out: Collection[str], keys: Iterable[str]) -> list[str]:
    return [key for key in keys if key in KEYS and key not in left_out]


def _layouts(rows: Sequence[Row]) -> dict[int, Row]:
    """The columns that decide figures, of a row of each layout."""
    columns = _without(_OF_NOTES, rows[0])
    cells = {tuple((row.get(key) or "").strip() for key in columns): at for at, row in enumerate(rows)}
    return {at: dict(zip(columns, its, strict=True)) for its, at in cells.items()}


def _sample(layouts: Mapping[int, Row], draw: Random) -> list[int]:
    """At most MOST_TRIED of the layouts: one of each value of a column first, of columns with few values before others,
    since a column may work beside a rare value alone; the rest at random.
    """
    if len(layouts) <= MOST_TRIED:
        return [*layouts]
    drawn = draw.sample([*layouts], len(layouts))
    columns = layouts[drawn[0]]
    one_each = sorted(({layouts[at][key]: at for at in drawn} for key in columns), key=len)
    return [*dict.fromkeys([*(at for its in one_each for at in its.values()), *drawn])][:MOST_TRIED]


def is_asked(cell: str | None) -> bool:
    """Whether a cell asks for something."""
    return (cell or "").strip() not in ("", "0", "0.0")


def figures_of(row: Row, known: Mapping[str, Machine], pieces: PieceTimes) -> object:
    """The figures of a row's job on the known machines: times, memory and FLOPs; pieces: of other rows there."""
    job = job_of(row, "")
    found = predict(job, known[job.gpu], known=pieces)
    return found.ms, dict(found.classes), dict(found.hidden), found.stages_memory, found.flops


def _others(key: str, text: str) -> Iterator[str]:
    """Other values that a column may have."""
    yield ""
    if key in _OTHER_WORDS:
        yield from _OTHER_WORDS[key]
    else:
        yield from "01" if key in FLAGS else (str(2 * int(float(text))),)
