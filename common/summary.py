"""The result of a verb, as text for a person and as one JSON object for a program."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

JsonValue: TypeAlias = "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 leaf` or `8 leaves`; without `plural` an s is added."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


class Summary(NamedTuple):
    """The result of a verb, printed at its end: `text` usually, `data` with --json. `failed` gives exit code 1."""

    text: str
    data: Mapping[str, JsonValue]
    failed: bool = False

    def as_json(self) -> str:
        """One JSON object in ASCII, which every locale can print; null stands for NaN and infinities."""
        try:
            return json.dumps(self.data, indent=2, allow_nan=False)
        except ValueError:  # a number is none; Python's reader takes what its writer writes of it
            plain = json.loads(json.dumps(self.data), parse_constant=lambda _: None)
            return json.dumps(plain, indent=2)
