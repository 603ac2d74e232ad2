import json
import math
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from common.errors import InputProblems
from protocol.case_config import CaseConfig, load_case_config, parse_override
from protocol.config_file import read_config_file


class Config(CaseConfig):
    rate: float = Field(0.1, gt=0, description="learning rate")
    steps: int = Field(10, ge=1)
    mode: Literal["fast", "exact"] = "fast"
    limit: int | None = 5
    shape: list[int] = Field([1, 2])


def write(folder: Path, text: str) -> Path:
    path = folder / "config_CPUx1x1.py"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str, overrides: dict[str, object] | None = None) -> list[str]:
    path = write(folder, text)
    with pytest.raises(InputProblems) as caught:
        load_case_config(Config, path, overrides or {})
    return [str(problem).replace(str(path), "FILE") for problem in caught.value.problems]


def test_defaults_then_file_then_overrides(tmp_path: Path) -> None:
    path = write(tmp_path, "steps = 3\nseed = steps * 2\nmode = 'exact'\n")
    config = load_case_config(Config, path, {"mode": "fast", "limit": None})
    assert (config.steps, config.seed, config.mode, config.limit, config.rate) == (3, 6, "fast", None, 0.1)
    assert load_case_config(Config, None, {}) == Config()
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, "steps", 4)  # noqa: B010 - mypy knows that it is read-only


def test_none_overrides_and_is_refused_where_it_is_no_value(tmp_path: Path) -> None:
    assert load_case_config(Config, write(tmp_path, "backend = 'gloo'"), {"backend": None}).backend is None
    assert problems(tmp_path, "steps = 3", {"steps": None}) == [
        "override: steps = None: expected a whole number of at least 1"
    ]


def test_helpers_are_no_settings(tmp_path: Path) -> None:
    text = """
import math
from os.path import join as joined
GIB = 1024**3
_base = 4
def double(x):
    inner = x
    return inner * 2
class Helper:
    attribute = 1
for i in range(2):
    steps = double(_base) + i
if GIB:
    rate: float = math.pi
limit = (seed := 7)
shape = [1]
shape += [GIB]
"""
    config = load_case_config(Config, write(tmp_path, text), {})
    assert (config.steps, config.limit, config.seed, config.shape) == (9, 7, 7, [1, 1024**3])
    assert config.rate == math.pi


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path, "step = 3\nrate = 0\nSEED = 1\nmode = 'quick'\nshape = [1, 'x']\n", {"limt": 3, "steps": True}
    )
    text = "\n".join(found)
    assert len(found) == 7
    assert (
        "FILE: step = 3: unknown setting (a name of your own begins with an underscore: _step); did you mean 'steps'?"
        in text
    )
    assert "FILE: rate = 0: expected a number above 0 (learning rate)" in text
    assert "FILE: SEED = 1: settings are written in lower case; did you mean 'seed'?" in text
    assert "FILE: mode = 'quick': expected one of 'fast', 'exact'" in text
    assert "FILE: shape = [1, 'x']: at 1: Input should be a valid integer" in text
    assert "override: limt = 3: unknown setting; did you mean 'limit'?" in text
    assert "override: steps = True: expected a whole number of at least 1" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps = (", "line 1: SyntaxError"),
        ("\nsteps = 1 / 0", "line 2: ZeroDivisionError"),
        ("import sys\n\nsys.exit(3)", "line 3: SystemExit"),
        ("steps = undefined", "line 1: NameError"),
    ],
)
def test_a_file_that_does_not_run_names_the_line(tmp_path: Path, text: str, expected: str) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith("FILE: ")
    assert expected in found


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "steps = 1")
    with pytest.raises(InputProblems, match=r"did you mean 'config_CPUx1x1'"):
        load_case_config(Config, tmp_path / "config_CPUx1x2.py", {})
    with pytest.raises(InputProblems, match="cannot be read"):
        read_config_file(tmp_path / "no_folder" / "config.py")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=3", 3),
        ("k=1.5", 1.5),
        ("k=true", True),
        ("k=True", True),
        ("k=null", None),
        ("k=None", None),
        ("k=8..64M x2", "8..64M x2"),
        ("k=[1, 2]", [1, 2]),
        ("k=", ""),
        ("k=a=b", "a=b"),
        ('k="3"', "3"),
    ],
)
def test_override_values(text: str, value: object) -> None:
    assert parse_override(text) == ("k", value)


@pytest.mark.parametrize("text", ["novalue", "=3", " =3"])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        parse_override(text)


values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(values | st.lists(values) | st.dictionaries(st.text(), values))
def test_overrides_survive_the_command_line(value: object) -> None:
    assert parse_override(f"key={json.dumps(value)}") == ("key", value)
