"""Where a value stands is shown and changes nothing: a run of the same values is the same run."""

from pathlib import Path

import pytest

from run_benchmarks.errors import InputProblems
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


def test_what_is_wrong_with_a_chain_is_said_with_all_other_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cpu" / "network-pytorch" / "config"
    folder.mkdir(parents=True)
    (folder / "config_one.py").write_text('extends = "config_two"\niteratons = 5\n')
    (folder / "config_two.py").write_text('extends = "config_one"\nnproc = 2\ndtype = "float"\n')
    monkeypatch.setattr("run_benchmarks.plan.resolve.case_dir", lambda *_: folder.parent)
    cluster, test = tmp_path / "cluster_conf.py", tmp_path / "test_conf.py"
    cluster.write_text(CLUSTER)
    lines = TEST.replace("config_CPUx1x2", "config_one").replace('"ONE"]', '"ONE", "TWO"]')
    test.write_text(f'{lines}ONE["overrides"] = {{"seed": -1}}\nTWO = ONE | {{"model": "netwrk"}}\n')
    with pytest.raises(InputProblems) as caught:
        prepare(load_settings(cluster, test), RUN)
    found = {(Path(problem.file).name.split(" ")[0], problem.key) for problem in caught.value.problems}
    assert found == {
        ("config_one.py", "iteratons"),
        ("config_two.py", "extends"),
        ("config_two.py", "nproc"),
        ("config_two.py", "dtype"),
        ("test_conf.py", "ONE.overrides.seed"),
        ("test_conf.py", "TWO.model:framework"),
    }
