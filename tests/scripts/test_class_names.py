"""A public class name is defined once in the product, so that it says one thing wherever it is read."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "run_benchmarks",
    "common",
    "protocol",
    "workloads",
    "training",
    "monitors",
    "vendors",
    "container",
    "simulation",
)
# Name -> where it may be defined more than once: the catalogue finds a plug-in's class by its name.
PLUG_INS = {"Config": "training/benchmarks/*/*/config.py"}


@functools.cache
def defined(root: Path) -> tuple[tuple[str, PurePosixPath], ...]:
    """Each public class of the packages below `root`, nested ones too, with the file that defines it."""
    return tuple(_defined(root))


def _defined(root: Path) -> Iterator[tuple[str, PurePosixPath]]:
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, PurePosixPath(path.relative_to(root).as_posix())


def defined_twice(root: Path) -> dict[str, list[str]]:
    """The files of each public class name that is defined more than once, plug-ins of that name left out."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, file in defined(root):
        if not (name in PLUG_INS and file.match(PLUG_INS[name])):
            places[name].append(str(file))
    return {name: files for name, files in places.items() if len(files) > 1 or name in PLUG_INS}


def test_a_public_class_name_is_defined_once() -> None:
    assert defined_twice(ROOT) == {}


def test_each_name_of_the_allow_list_is_that_of_several_plug_ins() -> None:
    found = [name for name, file in defined(ROOT) if name in PLUG_INS and file.match(PLUG_INS[name])]
    assert {name for name in found if found.count(name) > 1} == set(PLUG_INS)


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("monitors/planted.py", "class Host:\n    pass\n", "Host"),
        ("run_benchmarks/planted.py", "def make():\n    class Host:\n        pass\n", "Host"),
        ("run_benchmarks/planted.py", "class Config:\n    pass\n", "Config"),
    ],
)
def test_a_second_definition_is_noticed(tmp_path: Path, file: str, text: str, name: str) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / "container" / "hosts.py").write_text("class Host:\n    pass\n", encoding="utf-8")
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert list(defined_twice(tmp_path)) == [name]
