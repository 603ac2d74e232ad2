"""A resumed run has the settings that it began with, whatever its files say now; only secrets come from these."""

from pathlib import Path

import pytest

from protocol import case_config
from protocol.case_file import CaseFile, lost_in_json
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.recorded import CASES_FOLDER, MAX_NAMED, recorded_cases, restored
from run_benchmarks.plan.resolve import Resolved, resolve
from tests.run_benchmarks.conftest import TEST, Load
from training.benchmarks.network.pytorch.config import Config

BEGAN = TEST + "ONE['overrides'] = {'sizes': '4K', 'iterations': 7}\n"


def resolved(load: Load, text: str, recorded: dict[str, CaseFile] | None = None) -> Resolved:
    return resolve(load(text), local_python="python3", recorded=recorded)


@pytest.fixture
def recorded(load: Load, tmp_path: Path) -> dict[str, CaseFile]:
    """What the folder of a run has that began with BEGAN."""
    (case,) = resolved(load, BEGAN).cases
    folder = tmp_path / "run" / CASES_FOLDER
    folder.mkdir(parents=True)
    (folder / "ONE.json").write_text(case.case_file.masked.text)
    return recorded_cases(tmp_path / "run")


def test_nothing_changed_is_nothing_said(load: Load, recorded: dict[str, CaseFile]) -> None:
    assert resolved(load, BEGAN, recorded) == resolved(load, BEGAN)


def test_the_settings_are_those_of_then_and_what_changed_is_said(load: Load, recorded: dict[str, CaseFile]) -> None:
    found = resolved(load, TEST + "ONE['overrides'] = {'sizes': '8K', 'iterations': 7}\n", recorded)
    assert found.cases[0].case_file == recorded["ONE"]
    assert found.warnings == (
        "ONE: config_CPUx1x2.py or the case's overrides changed since the run began (sizes was '4K', is '8K'); "
        "the run continues with the settings it began with",
    )
    many = TEST + "ONE['overrides'] = {'sizes': '8K', 'iterations': 8, 'warmup_iterations': 1, 'check': False}\n"
    assert f"and {4 - MAX_NAMED} more" in resolved(load, many, recorded).warnings[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ONE['config'] = 'config_gone'", "no file config_gone.py in "),
        ("ONE['overrides'] = {'itertions': 3}", "itertions = 3: unknown setting; did you mean 'iterations'?"),
    ],
)
def test_files_that_cannot_be_used_any_more_are_not_needed(
    change: str, said: str, load: Load, recorded: dict[str, CaseFile]
) -> None:
    found = resolved(load, f"{BEGAN}{change}\n", recorded)
    assert found.cases[0].case_file == recorded["ONE"]
    assert said in found.warnings[0] and "continues with the settings it began with" in found.warnings[0]
    with pytest.raises(InputProblems):
        resolved(load, f"{BEGAN}{change}\n")


class Secret(case_config.CaseConfig):
    api_token: str | None = None
    index: str = ""


def test_a_secret_is_that_of_the_files_and_one_that_is_gone_is_a_mistake() -> None:
    began = Secret(api_token="s3cr3t-token", index="https://me:password@host/")
    file = CaseFile(case="ONE", model="m", framework="f", config=began.model_dump(mode="json"))
    now = Secret(api_token="s3cr3t-token", index="https://me:password@host/", seed=5)
    assert restored(file.masked, now, Secret) == began
    with pytest.raises(InputProblems) as caught:
        restored(file.masked, Secret(), Secret)
    assert [problem.key for problem in caught.value.problems] == ["api_token", "index"]
    assert "cases/ONE: api_token: expected as it was when the run began: it holds a secret" in str(caught.value)


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / CASES_FOLDER).mkdir()
    (tmp_path / CASES_FOLDER / "ONE.json").write_text('{"schema_version": 1}')
    with pytest.raises(InputProblems, match=r"ONE\.json: is no case\.json"):
        recorded_cases(tmp_path)
    assert recorded_cases(tmp_path / "none") == {}


class Infinite(case_config.CaseConfig):
    limit: float = 1.0


def test_a_value_that_json_cannot_carry_is_told() -> None:
    assert lost_in_json(Infinite(limit=float("inf"))) == ["limit"]
    assert lost_in_json(Infinite(seed=7)) == [] and lost_in_json(Config(sizes="8..64M x2")) == []
