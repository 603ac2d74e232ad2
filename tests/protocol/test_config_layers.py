"""base.py, `extends`, the file and the overrides: which value counts, where it comes from, and what is refused."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import InputProblems
from protocol.case_config import CaseConfig, LoadedConfig, trace_case_config
from protocol.config_file import config_file, config_files
from protocol.config_layers import MOST_FILES

SETTINGS = """
from pydantic import Field, model_validator
from protocol.case_config import CaseConfig
class Config(CaseConfig):
    rate: float = Field(0.1, gt=0)
    steps: int = Field(10, ge=1)
    mode: str = "fast"
    limit: int | None = 5
    @model_validator(mode="after")
    def _limit_is_kept(self):
        if self.limit is not None and self.steps > 1000:
            raise ValueError("steps is above 1000; allowed: with limit = None")
        return self
"""


class Folder:
    """A benchmark's settings, its base.py, and a folder of case configs."""

    def __init__(self, path: Path, config_class: type[CaseConfig]) -> None:
        self.path, self.config_class = path, config_class

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.path / f"{name}.py").write_text(text, encoding="utf-8")

    def load(self, name: str, overrides: dict[str, object] | None = None) -> LoadedConfig[CaseConfig]:
        return trace_case_config(self.config_class, self.path / f"{name}.py", overrides or {})

    def mistakes(self, name: str, overrides: dict[str, object] | None = None) -> list[str]:
        with pytest.raises(InputProblems) as caught:
            self.load(name, overrides)
        return [str(problem).replace(f"{self.path}/", "") for problem in caught.value.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Settings and base.py in one folder, the case configs in another, as those of vendors are."""
    module_file, configs = tmp_path / "benchmark" / "config.py", tmp_path / "config"
    for directory in (module_file.parent, configs):
        directory.mkdir()
    module_file.write_text(SETTINGS, encoding="utf-8")
    (module_file.parent / "base.py").write_text(
        "# Published.\nrate = 0.5\nsteps = 20\nmode = 'base'\n", encoding="utf-8"
    )
    spec = importlib.util.spec_from_file_location("layered_config", module_file)
    assert spec is not None and spec.loader is not None
    module = sys.modules["layered_config"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield Folder(configs, module.Config)
    del sys.modules["layered_config"]


def test_the_last_that_sets_a_value_counts_and_is_its_origin(folder: Folder) -> None:
    folder.write(
        device="TEN = 10\nsteps = 3 * TEN\nmode = 'device'\n", case="extends = 'device'\nmode = 'case'\nlimit = 7\n"
    )
    loaded = folder.load("case", {"limit": None})
    values = loaded.config.model_dump()
    assert {key: values[key] for key in ("rate", "steps", "mode", "limit", "seed")} == {
        "rate": 0.5, "steps": 30, "mode": "case", "limit": None, "seed": 42,
    }  # fmt: skip
    origins = {key: Path(origin).name for key, origin in loaded.origins.items()}
    assert origins == {
        "rate": "base.py", "steps": "device.py", "mode": "case.py", "limit": "override", "seed": "default",
        "backend": "default", "timeout_s": "default",
    }  # fmt: skip


def test_a_value_is_taken_from_the_file_that_sets_it_not_from_a_like_one(folder: Folder) -> None:
    """A file that repeats a value is its origin, and None is a value."""
    folder.write(case="rate = 0.5\nlimit = None\n")
    loaded = folder.load("case")
    assert Path(loaded.origins["rate"]).name == Path(loaded.origins["limit"]).name == "case.py"
    assert loaded.config.model_dump()["limit"] is None


def test_a_file_serves_other_names_and_a_file_of_such_a_name_counts_before_it(folder: Folder) -> None:
    folder.write(case="serves = ['one', 'two']\nsteps = 7\n", one="steps = 8\n", broken="serves = [")
    names = config_files(folder.path)
    assert {name: path.stem for name, path in names.items()} == {
        "broken": "broken", "case": "case", "one": "one", "two": "case",
    }  # fmt: skip
    assert config_file(folder.path, "two") == names["two"] and config_file(folder.path, "no").stem == "no"
    assert trace_case_config(folder.config_class, names["two"], {}).config.model_dump()["steps"] == 7


def test_all_vendors_have_the_common_configs_and_one_of_the_vendor_counts_before_it(
    folder: Folder, tmp_path: Path
) -> None:
    common, own = (tmp_path / "vendors" / name / "model-torch/config" for name in ("common", "abacus"))
    for configs in (common, own):
        configs.mkdir(parents=True)
    (common / "short.py").write_text("serves = ['brief']\nsteps = 3\nlimit = 4\n")
    (common / "deep.py").write_text("extends = 'short'\nmode = 'deep'\n")
    assert (config_file(own, "short"), config_file(own, "brief")) == (common / "short.py", common / "short.py")
    (own / "device.py").write_text("extends = 'deep'\nlimit = 9\n")
    values = trace_case_config(folder.config_class, own / "device.py", {}).config.model_dump()
    assert (values["steps"], values["limit"], values["mode"]) == (3, 9, "deep")
    (own / "short.py").write_text("extends = 'short'\nsteps = 5\n")  # the common one of its own name
    values = trace_case_config(folder.config_class, config_file(own, "short"), {}).config.model_dump()
    assert (values["steps"], values["limit"]) == (5, 4)
    (own / "device.py").write_text("extends = 'deap'\n")
    with pytest.raises(InputProblems, match="did you mean 'deep'") as caught:
        trace_case_config(folder.config_class, own / "device.py", {})
    assert "deep, short" in str(caught.value)


def test_without_a_case_config_there_are_defaults_and_overrides_alone(folder: Folder) -> None:
    loaded = trace_case_config(folder.config_class, None, {"steps": 3})
    assert loaded.config == folder.config_class.model_validate({"steps": 3})
    assert {key for key, origin in loaded.origins.items() if origin == "default"} == {*loaded.origins} - {"steps"}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"case": "extends = 'case'"}, "case.py: extends = 'case': the chain is a cycle: case -> case"),
        ({"case": "extends = 'one'", "one": "extends = 'two'", "two": "extends = 'case'"},
         "two.py: extends = 'case': the chain is a cycle: case -> one -> two -> case"),
        ({"case": "extends = 'one'", "one": "extends = 'two'", "two": "extends = 'one'"},
         "two.py: extends = 'one': the chain is a cycle: case -> one -> two -> one"),
        ({"case": "extends = 'devise'", "device": ""}, "case.py: extends = 'devise': no file devise.py in "),
        ({"case": "extends = 'devise'", "device": ""}, "did you mean 'device'?"),
        ({"case": "extends = 'device.py'", "device": ""},
         "extends = 'device.py': is not the name of a config file; did you mean 'device'?; allowed: the name of"),
        ({"case": "extends = '../config/device'", "device": ""}, "is not the name of a config file"),
        ({"case": "extends = ['device']", "device": ""}, "extends = ['device']: is not the name of a config file"),
        ({"case": "extends = None"}, "without '.py': there is none"),
        ({"case": "EXTENDS = 'device'", "device": ""}, "settings are written in lower case; did you mean 'extends'?"),
        ({"case": "extends = 'device'", "device": "steps = 1 / 0"}, "device.py: line 1: ZeroDivisionError"),
        ({"case": "serves = 'other'"}, "case.py: serves = 'other': allowed: a list of names of case configs"),
        ({"case": "serves = ['../other']"}, "case.py: serves = ['../other']: allowed: a list of names"),
        ({"case": "nnodes = 2"}, "case.py: nnodes = 2: a key of the case in test_conf.py, not of its config"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_extend_is_named(texts: dict[str, str], expected: str, folder: Folder) -> None:
    folder.write(**texts)
    (found,) = folder.mistakes("case")
    assert expected in found


def test_a_chain_has_an_end(folder: Folder) -> None:
    for number in range(MOST_FILES):
        folder.write(**{f"c{number}": f"extends = 'c{number + 1}'\n", f"c{number + 1}": ""})
    assert folder.load("c1").config.model_dump()["steps"] == 20
    (found,) = folder.mistakes("c0")
    assert f"too long a chain: c0 -> c1 -> c2 -> c3 -> c4; allowed: up to {MOST_FILES} files" in found


def test_base_py_extends_nothing(folder: Folder) -> None:
    folder.write(case="steps = 3")
    (folder.path.parent / "benchmark" / "base.py").write_text("extends = 'case'\n", encoding="utf-8")
    (found,) = folder.mistakes("case")
    assert "base.py: extends = 'case': base.py is below all config files and extends none" in found


def test_all_mistakes_of_all_files_are_said_at_once(folder: Folder) -> None:
    folder.write(device="extends = 'devic'\nrat = 3\nrate = -1\nsteps = 2000\n", case="extends = 'device'\nmode = 3\n")
    found = folder.mistakes("case", {"limt": 3, "extends": "device"})
    assert len(found) == 6
    for mistake, start in zip(
        sorted(found),
        [
            "case.py: mode = 3: ",
            "device.py (below case.py): rate = -1: expected a number above 0",
            "device.py: extends = 'devic': no file devic.py",
            "device.py: rat = 3: unknown setting",
            "override: extends = 'device': only a config file extends another",
            "override: limt = 3: unknown setting",
        ],
        strict=True,
    ):
        assert mistake.startswith(start)


def test_a_rule_over_several_settings_names_all_files(folder: Folder) -> None:
    folder.write(device="steps = 2000\n", case="extends = 'device'\n")
    rule = "steps is above 1000; allowed: with limit = None"
    assert folder.mistakes("case") == [f"case.py with device.py and base.py: {rule}"]
    assert folder.mistakes("case", {"seed": 1}) == [f"case.py with device.py and base.py: {rule}"]
    folder.write(device="steps = 2\n", case="extends = 'device'\n")
    assert folder.mistakes("case", {"seed": 1, "steps": 2000}) == [f"override: steps = 2000: {rule}"]
    folder.write(case="extends = 'devise'\nsteps = 2000\n")
    (found,) = folder.mistakes("case")
    assert "devise" in found, "a rule over several settings was applied to half of them"
