"""Describes the settings of every file from their types, for `run.py list` and the documentation's table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from protocol.schema_words import type_in_words
from run_benchmarks.settings.case import CaseSettings
from run_benchmarks.settings.cluster import ClusterConf
from run_benchmarks.settings.run import TestConf

FILES: tuple[tuple[str, type[BaseModel]], ...] = (
    ("cluster_conf.py", ClusterConf),
    ("test_conf.py", TestConf),
    ("a case", CaseSettings),
)
COLUMNS = ("file", "key", "allowed", "default", "meaning")


@dataclass(frozen=True, kw_only=True)
class SettingDoc:
    """The description of one setting for people."""

    key: str
    allowed: str
    default: str
    meaning: str


def documented(model: type[BaseModel]) -> list[SettingDoc]:
    """Every setting of a model, in its order."""
    schema = model.model_json_schema()["properties"]
    return [
        SettingDoc(
            key=key,
            allowed=type_in_words(schema[key]).removesuffix(" or None"),  # the column of the default shows None
            default=_default(field, is_size="words" in schema[key] and schema[key]["words"].startswith("a size")),
            meaning=field.description or "",
        )
        for key, field in model.model_fields.items()
    ]


def table_rows() -> list[tuple[str, ...]]:
    """COLUMNS of every setting of the two files and of a case."""
    return [
        (file, doc.key, doc.allowed, doc.default, doc.meaning) for file, model in FILES for doc in documented(model)
    ]


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table of settings that the documentation shows; a column `file` is filled in the first row of each file."""
    lines = [_line(columns), _line(["---"] * len(columns))]
    previous: Sequence[str] = ()
    for row in rows:
        *file, key, allowed, default, meaning = row
        lines.append(
            _line([*("" if file == previous else name for name in file), f"`{key}`", allowed, default, meaning])
        )
        previous = file
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo, *, is_size: bool) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "computed"
    value: Any = field.default
    if value is None:
        return "none"
    if is_size:
        return f"{value >> 30}G" if value >= 1 << 30 else f"{value >> 20}M"
    return str(value) if isinstance(value, str | Path) else repr(value)
