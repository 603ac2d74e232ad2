"""Reads records of rounds in the folder of a run of the benchmarks, which may be anybody's."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from common.errors import input_problem

MOST_BYTES = 64 << 20
Record = TypeVar("Record", bound=BaseModel)


def rounds(folder: Path, flag: str) -> Iterator[Path]:
    """The round.json of every round.

    Raises:
        InputProblems: the folder that the option `flag` names has none.
    """
    paths = sorted(folder.glob("*/round*/round.json"))
    if not paths:
        raise input_problem(flag, folder, "is no folder of a run: it has no */round*/round.json")
    yield from paths


def read_record(path: Path, model: type[Record]) -> Record:
    """The part of a record that `model` describes.

    Raises:
        InputProblems: it cannot be read, or has another form.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise input_problem(str(path), None, f"has more than {MOST_BYTES} bytes")
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise input_problem(str(path), None, error.strerror or "cannot be read") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise input_problem(str(path), None, f"is no record of a run: {place}: {first['msg']}") from None
