"""Says by which settings a case differs from its benchmark's defaults, from what run.json has of it."""

from __future__ import annotations

from collections.abc import Iterator

from common.errors import InputProblems
from protocol.config_file import read_config_file
from protocol.config_layers import base_file
from protocol.masking import mask_config
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.results.summary import show
from training.benchmarks.catalog import UnknownBenchmarkError, benchmark


def changed_settings(case: CaseRecord) -> list[tuple[str, str, str]]:
    """Name, value, default of settings that differ from it, the vendor's parts first; none: unknown benchmark."""
    try:
        config_class = benchmark(case.model, case.framework).config_class
        base = base_file(config_class)
        values = read_config_file(base) if base is not None else {}
    except (UnknownBenchmarkError, InputProblems):
        return []
    defaults = {
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in config_class.model_fields.items()
    }
    own = [("extern", f"{file}, sha256 {sha256[:12]}", "none") for file, sha256 in case.extern.items()]
    return [*own, *_changes(case, mask_config({**defaults, **values}))]


def _changes(case: CaseRecord, defaults: dict[str, object]) -> Iterator[tuple[str, str, str]]:
    for name, value in case.config.items():
        if name not in defaults:
            continue
        now, then = _plain(value), _plain(defaults[name])
        if now != then and not then.startswith("PydanticUndefined"):
            yield name, now, then


def _plain(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_plain, value)) or "none"
    if value is None:
        return "none"
    return show(value)
