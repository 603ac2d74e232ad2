"""Finds the columns of a job that change nothing of what is predicted of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from common.errors import InputProblems
from simulation.predict.iteration import predict
from simulation.predict.job_table import CP_WAYS, FLAGS, KEYS, RECOMPUTE, VALUE_WORDS, job_of
from simulation.predict.machine import Machine
from simulation.predict.pieces import PieceTimes

MOST_TRIED = 100
"""Rows that a column is tried in: one without effect takes three predictions more of each."""
NAMES = ("name", "gpu", "max_position_embeddings")
"""Columns that say which job it is, and how far its positions reach, of which notes tell."""
_OTHER_WORDS: Mapping[str, Sequence[str]] = {
    **{key: tuple(words) for key, words in VALUE_WORDS.items()}, "recompute": RECOMPUTE, "cp_comm": CP_WAYS,
    "precision": ("bf16", "fp8"), "framework": ("Megatron", "torch"), "attention": ("cuDNN", "flash"),
}  # fmt: skip
Row = Mapping[str, str]


def idle_columns(keys: Sequence[str], rows: Sequence[Row], figures: Callable[[Row], object]) -> list[str]:
    """Of the columns `keys` those that change nothing: in no row does it change a figure if one is left out, or says
    another word, or twice the number. Of more than MOST_TRIED rows that have a column as many decide, at random.

    An empty cell and a 0, which ask for nothing, are left out. figures: of a row; a value that they refuse (by
    InputProblems) is checked against others, and has an effect.
    """
    known: dict[int, object] = {}

    def is_idle_in(key: str, at: int) -> bool:
        if at not in known:
            known[at] = figures(rows[at])
        try:
            return all(figures({**rows[at], key: value}) == known[at] for value in _others(key, rows[at][key]))
        except InputProblems:
            return False

    def is_idle(key: str) -> bool:
        given = [at for at, row in enumerate(rows) if is_asked(row.get(key))]
        given = given if len(given) <= MOST_TRIED else Random(key).sample(given, MOST_TRIED)
        return bool(given) and all(is_idle_in(key, at) for at in given)

    return [key for key in keys if key in KEYS and key not in NAMES and is_idle(key)]


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
