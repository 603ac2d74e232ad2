"""A benchmark's outcome that fails while a run is planned is a mistake of its case, told as every other mistake."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from protocol.baseline_file import CaseBaseline, save
from protocol.default_outcome import DefaultOutcome
from protocol.outcome import MeasuredCase, Metric
from run_benchmarks.commands.diagnose import ladder_case
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan import resolve as resolving
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import TEST, Load
from training.benchmarks.catalog import Benchmark, benchmark


class Failing(DefaultOutcome):
    """Fails on every case."""

    def metrics(self, config: Mapping[str, Any]) -> list[Metric]:
        raise KeyError("points")

    def conditions(self, case: MeasuredCase) -> dict[str, JsonValue]:
        raise KeyError("size")

    def probe(self, config: Mapping[str, Any]) -> dict[str, JsonValue] | None:
        raise KeyError("sizes")


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every benchmark's outcome fails."""

    def found(model: str, framework: str) -> Benchmark:
        return dataclasses.replace(benchmark(model, framework), outcome=Failing())

    monkeypatch.setattr(resolving, "benchmark", found)


@pytest.mark.parametrize(
    ("names", "keys", "said"),
    [(("a", "b", "a"), (), "declares a twice"), (("a", "b"), ("a", "b"), "declares a, b as key figures; expected one")],
)
def test_metrics_that_contradict_each_other_are_named(
    names: tuple[str, ...], keys: tuple[str, ...], said: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = [Metric(name=name, unit="s", better="lower", is_key=name in keys) for name in names]
    monkeypatch.setattr(Failing, "metrics", lambda self, config: declared)
    with pytest.raises(InputProblems, match=rf"ONE\.expect: metrics\(\) of network:pytorch's outcome fails: .*{said}"):
        prepare(load(TEST + "ONE['expect'] = {'a': '< 9'}\n"), "run1")


def test_limits_name_the_part_that_fails(load: Load) -> None:
    settings = load(TEST + "ONE['expect'] = {'e2e_time': '< 9'}\n")
    with pytest.raises(
        InputProblems, match=r"ONE\.expect: metrics\(\) of network:pytorch's outcome fails: KeyError: 'p"
    ):
        prepare(settings, "run1")


def test_a_case_without_limits_needs_no_metrics(load: Load) -> None:
    assert [case.name for case in prepare(load(), "run1").plan.cases] == ["ONE"]


def test_a_baseline_names_the_part_that_fails(load: Load, tmp_path: Path) -> None:
    known = CaseBaseline(
        case="ONE", model="network", framework="pytorch", device="", run="run1", conditions={}, entries={}
    )
    save([known], tmp_path / "good.json")
    settings = load(f"{TEST}BASELINE = {str(tmp_path / 'good.json')!r}\n")
    with pytest.raises(
        InputProblems, match=r"ONE: conditions\(\) of network:pytorch's outcome fails: KeyError: 'size'"
    ):
        prepare(settings, "run1")


def test_diagnose_names_the_part_that_fails(load: Load, tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    case = "ONE['nnodes'] = 2\nONE['config'] = 'config_CPUx2x2'\nPYTHON = '/usr/bin/python3'\n"
    hosts = f"HOSTS = ['192.0.2.1', '192.0.2.2']\nSSH_KEY = {str(tmp_path / 'key')!r}\n"
    prepared = prepare(load(TEST + case, hosts), "run1")
    with pytest.raises(InputProblems, match=r"ONE: probe\(\) of network:pytorch's outcome fails: KeyError: 'sizes'"):
        ladder_case(prepared)
