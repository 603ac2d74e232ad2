"""Where a value stands is shown and changes nothing: a run of the same values is the same run."""

from __future__ import annotations

from pathlib import Path

from run_benchmarks.plan.origins import repository_path
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.changes import Changes
from run_benchmarks.settings.settings import load_settings
from tests.run_benchmarks.conftest import CLUSTER, TEST

RUN = "run20261121191924"


def test_a_value_given_another_way_is_the_same_run(tmp_path: Path) -> None:
    """`resume` goes on with a copy of the files under another name, and with --set written into the file."""
    cluster = tmp_path / "cluster_conf.py"
    cluster.write_text(CLUSTER)
    one, other = tmp_path / "test_conf.py", tmp_path / "copy.py"
    one.write_text(TEST)
    other.write_text(TEST + 'ONE["overrides"] = {"iterations": 7}\n')
    prepared = [
        prepare(load_settings(cluster, one, Changes(sets=("ONE.overrides.iterations=7",))), RUN),
        prepare(load_settings(cluster, other), RUN),
        prepare(load_settings(cluster, one), RUN),
    ]
    assert [each.plan.cases[0].config_origins["iterations"] for each in prepared] == [
        "--set ONE.overrides.iterations",
        "copy.py: ONE.overrides.iterations",
        "vendors/cpu/network-pytorch/config/config_CPUx1x2.py",
    ]
    same, copy, changed = (each.digest() for each in prepared)
    assert same == copy != changed


def test_a_path_is_told_from_the_repository_on(tmp_path: Path) -> None:
    base = tmp_path / "training" / "benchmarks" / "bert" / "pytorch" / "base.py"
    assert repository_path(base) == "training/benchmarks/bert/pytorch/base.py"
