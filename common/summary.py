"""The result of a verb, as text for a person and as one JSON object for a program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

JsonValue: TypeAlias = "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 leaf` or `8 leaves`; without `plural` an s is added."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


class Summary(NamedTuple):
    """The result of a verb, printed at its end: `text` usually, `data` with --json. `failed` gives exit code 1."""

    text: str
    data: Mapping[str, JsonValue]
    failed: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of the program: 1 if the verb failed, else 0."""
        return int(self.failed)

    def as_json(self) -> str:
        """One JSON object in ASCII, which every locale can print; null stands for NaN and infinities."""
        import json  # not for a verb's --help

        try:
            return json.dumps(self.data, indent=2, allow_nan=False)
        except ValueError:  # a number is none; Python's reader takes what its writer writes of it
            plain = json.loads(json.dumps(self.data), parse_constant=lambda _: None)
            return json.dumps(plain, indent=2)


class Answer(NamedTuple):
    """The result of a verb that prints more than text: with --json `data` makes one object of records and dataclasses,
    otherwise `show` prints it for a person.
    """

    data: Callable[[], Any]
    show: Callable[[], object] = lambda: None
    exit_code: int = 0

    def as_json(self) -> str:
        """As `Summary.as_json`; the names are those of the fields, as in the files of records."""
        from pydantic_core import to_jsonable_python

        return Summary("", to_jsonable_python(self.data())).as_json()
