"""What the shipped case configs resolve to, and that each value stands in one file.

`UPDATE_GOLDEN=1 pytest tests/vendors/test_shipped_configs.py` writes the recorded values anew; read the difference
before a commit.
"""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

from protocol.case_config import load_case_config
from protocol.config_file import config_files
from protocol.config_layers import base_file, read_layers
from training.benchmarks.catalog import Benchmark, available, benchmark

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "case_configs.json"
CONFIGS = sorted((ROOT / "vendors").glob("*/*-*/config/*.py"))
BASES = [path for name in available() if (path := base_file(benchmark(*name).config_class)) is not None]


def _benchmark_of(path: Path) -> Benchmark:
    return benchmark(*path.parents[1].name.split("-", 1))


def _resolved() -> dict[str, Any]:
    """Of each benchmark the defaults of its settings, and of each name that its configs serve what differs."""
    found: dict[str, Any] = {}
    folders = sorted({path.parent for path in CONFIGS})
    for served, path in ((folder / name, path) for folder in folders for name, path in config_files(folder).items()):
        config_class = _benchmark_of(path).config_class
        fields = sorted(config_class.model_fields.items())
        defaults = {key: info.get_default(call_default_factory=True) for key, info in fields}
        values = load_case_config(config_class, path, {}).model_dump(mode="json")
        name = path.parents[1].name.replace("-", ":")
        group = found.setdefault(name, {"defaults": defaults, "configs": {}})
        changed = {key: value for key, value in values.items() if value != defaults[key]}
        group["configs"][f"{served.relative_to(ROOT).as_posix()}.py"] = changed
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def test_every_config_resolves_to_the_recorded_values() -> None:
    found = _resolved()
    if os.environ.get("UPDATE_GOLDEN"):
        RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert found == json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: "/".join(path.parts[-4:]).replace("/config/", "/"))
def test_a_config_sets_only_what_differs_from_the_files_below_it(path: Path) -> None:
    layers = read_layers(path, base_file(_benchmark_of(path).config_class))
    assert not layers.problems
    below: dict[str, object] = {}
    for layer in layers.files[:-1]:
        below |= layer.values
    repeated = {key for key, value in layers.files[-1].values.items() if key in below and below[key] == value}
    assert repeated == set(), "the files below it set the same value"


def test_every_trained_model_has_a_base() -> None:
    assert {path.parts[-3] for path in BASES} >= {"bert", "cpm", "glm", "llama"}


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.parts[-3])
def test_a_base_names_its_sources(path: Path) -> None:
    head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert "\nSource" in head and "FlagPerf" in head
