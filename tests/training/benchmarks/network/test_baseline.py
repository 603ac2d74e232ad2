"""A baseline that is learned from a run and held against later ones, through the command."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from protocol.baseline_file import CaseBaseline, save
from protocol.default_outcome import compare
from protocol.outcome import Reference
from protocol.perflog import PREFIX
from tests.training.benchmarks.network.fabrics import Ailment, Fabric, Part
from tests.training.benchmarks.network.fabrics import steps as fabric_steps
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network import baseline, reporting
from training.benchmarks.network.reporting.references import MOST_HOSTS_OF_PAIRS, references, what_of

METADATA = {"file": "suite.py", "lineno": 1, "time_ms": 1, "rank": 0}


def line(event: str, value: Mapping[str, Any]) -> str:
    return PREFIX + json.dumps({"event": event, "value": value, "metadata": METADATA}) + "\n"


def run_folder(
    folder: Path, seed: int, factors: dict[str, float], *, correct: str = "pass", device: str = "cpu"
) -> Path:
    """A run's folder with one round of pairs among four hosts."""
    log = folder / "PAIRS" / "round1" / "host_noderank0" / "rank0.out.log"
    log.parent.mkdir(parents=True)
    values = steps("pairs", 4, slowest_member(factors), noise=0.01, seed=seed)
    submitted = {"model": "network", "framework": "pytorch", "case": "PAIRS", "device": device, "config": {}}
    text = line("SUBMIT_INFO", submitted)
    text += "".join(line("STEP_END", value) for value in values)
    log.write_text(text + line("FINISHED", {"correct": correct}))
    return folder


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return run_folder(tmp_path / "good", 1, {})


def test_the_same_cluster_compares_well(tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "baseline.json"
    assert baseline.PROGRAM.main(["save", str(good), str(file)]) == 0
    assert "6 measurements" in capsys.readouterr().out
    assert baseline.PROGRAM.main(["compare", str(run_folder(tmp_path / "later", 2, {})), str(file)]) == 0
    out = capsys.readouterr().out
    assert "6 compared, 0 slower by more than 10 %" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["baseline.json", "good", "later"]


def test_a_host_that_became_slow_is_a_regression(
    tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "baseline.json"
    baseline.PROGRAM.main(["save", str(good), str(file)])
    capsys.readouterr()
    later = run_folder(tmp_path / "later", 2, {"node4": 0.7})
    assert baseline.PROGRAM.main(["compare", str(later), str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    slower = [each for each in lines if each.startswith("SLOWER")]
    assert len(slower) == 3 and all("node4" in each for each in slower)
    assert lines[:3] == slower, "the worst stand first"
    assert baseline.PROGRAM.main(["compare", str(later), str(file), "--percent", "60"]) == 0


def test_overlapping_ranges_prove_nothing() -> None:
    then = Reference(value=100, low=80, high=150, n=3, unit="us", better="lower")
    now = Reference(value=140, low=120, high=160, n=3, unit="us", better="lower")
    assert [change.is_regression for change in compare({"a": now}, {"a": then}, 10)] == [False]


@pytest.mark.parametrize(("fastest", "regression"), [(105.0, False), (125.0, True)])
def test_of_a_single_repeat_the_iterations_are_the_range(fastest: float, regression: bool) -> None:
    """One p50 tells nothing of the noise."""

    def measured(**time_us: float) -> dict[str, Reference]:
        return references([{"collective": "all_reduce", "busbw_GBps": 1.0, "time_us": time_us}])

    then, now = measured(min=90.0, p50=100.0, p95=120.0), measured(min=fastest, p50=140.0, p95=160.0)
    assert [change.is_regression for change in compare(now, then, 10)] == [regression]


def test_a_baseline_of_many_hosts_holds_hosts_and_not_pairs(tmp_path: Path) -> None:
    """Its size grows with the number of hosts: 1,024 of them, at 8 sizes, fit in 20 MB."""
    count = MOST_HOSTS_OF_PAIRS + 2

    def measured(factors: dict[str, float], seed: int) -> dict[str, Reference]:
        values = steps("pairs", count, slowest_member(factors), noise=0.01, seed=seed)
        return references({**each, "collective": "all_reduce"} for each in values)

    then, now = measured({}, 1), measured({"node5": 0.7}, 2)
    assert then.keys() == now.keys() and len(then) == count
    slower = [change for change in compare(now, then, 10) if change.is_regression]
    assert [what_of(change.now) for change in slower] == ["all_reduce node5 at 16M"]
    case = CaseBaseline(
        case="PAIRS", model="network", framework="pytorch", device="cpu", run="run1", conditions={}, entries=then
    )
    save([case], tmp_path / "baseline.json")
    assert (tmp_path / "baseline.json").stat().st_size / count * 1024 * 8 < 20e6
    assert len(references(steps("pairs", 8, slowest_member({}), noise=0.01, seed=1))) == 28


def test_of_rails_a_baseline_of_many_hosts_holds_each_host_s_and_of_few_each_pair_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporting.references, "MOST_HOSTS_OF_PAIRS", 8)
    bad: dict[Part, float] = {(4, "rail 1"): 0.5}

    def measured(hosts: int, ailment: Ailment) -> dict[str, Reference]:
        values = fabric_steps(Fabric(1, hosts, rails=2), ailment, 1, repeats=1, pattern="rail_pairs")
        return references({**each, "collective": "all_reduce"} for each in values)

    def slower(now: dict[str, Reference], then: dict[str, Reference]) -> list[str]:
        assert now.keys() == then.keys()
        return [what_of(change.now) for change in compare(now, then, 30) if change.is_regression]

    then = measured(9, Ailment())
    assert len(then) == 9 * 2 * 2, "hosts, rails and sizes"
    assert slower(measured(9, Ailment(rate=bad)), then) == ["all_reduce node5 rail 1 at 4M"]
    few = slower(measured(6, Ailment(rate=bad)), measured(6, Ailment()))  # each pair's
    pairs = ("node1-node5", "node2-node5", "node3-node5", "node4-node5", "node5-node6")
    assert sorted(few) == [f"all_reduce {pair} rail 1 at 4M" for pair in pairs]


@pytest.mark.parametrize("p50", [0.0, -5.0, 1e300])
def test_a_time_that_cannot_be_is_no_reference(p50: float) -> None:
    """A host may send anything; a ratio of such times would be none."""
    step = {"collective": "all_reduce", "busbw_GBps": 1.0, "time_us": {"p50": p50}}
    assert references([step]) == {}


def test_what_cannot_be_compared_is_said(tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "baseline.json"
    empty = tmp_path / "empty"
    empty.mkdir()
    for argv, expected in [
        (["save", str(empty), str(file)], "no rank0.out.log with measurements"),
        (["save", str(run_folder(tmp_path / "bad", 1, {}, correct="fail")), str(file)], "no rank0.out.log with"),
        (["save", str(good), str(tmp_path / "no" / "file")], "cannot be written"),
        (["compare", str(good), str(file)], "is no baseline"),
    ]:
        assert baseline.PROGRAM.main([*argv]) == 2
        assert expected in capsys.readouterr().err
    assert not file.exists()
    file.write_text('{"schema_version": 9}')
    assert baseline.PROGRAM.main(["compare", str(good), str(file)]) == 2
    assert "schema_version 9, expected 3" in capsys.readouterr().err
    file.write_text('{"schema_version": 2, "run": "run1", "entries": {}}')
    assert baseline.PROGRAM.main(["compare", str(good), str(file)]) == 2
    assert "neither units nor devices nor settings; make a new one" in capsys.readouterr().err
    file.write_text('{"schema_version": 3, "saved_ms": 1, "cases": []}')
    assert baseline.PROGRAM.main(["compare", str(good), str(file)]) == 2
    assert "nothing that the baseline holds" in capsys.readouterr().err


def test_both_mistakes_are_told_at_once_and_json_has_the_comparison(
    tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, empty = tmp_path / "baseline.json", tmp_path / "empty"
    empty.mkdir()
    assert baseline.PROGRAM.main(["compare", str(empty), str(file)]) == 2
    assert [line.partition(": ")[0] for line in capsys.readouterr().err.splitlines()] == ["error", "error"]
    assert baseline.PROGRAM.main(["save", str(good), str(file)]) == 0
    capsys.readouterr()
    assert baseline.PROGRAM.main(["compare", str(good), str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["compared"], said["slower"], said["new"]) == (6, 0, 0)


def test_the_verbs_are_behind_the_word_baseline() -> None:
    called = [sys.executable, "-m", "training.benchmarks.network", "baseline"]
    for words, said in (([], ".network baseline VERB"), (["compare"], ".network baseline compare [-h]")):
        done = subprocess.run([*called, *words, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and said in " ".join(done.stdout.split()), done


@pytest.mark.parametrize("percent", ["nan", "inf", "-1", "x"])
def test_a_limit_that_is_none_is_refused_and_a_baseline_to_write_need_not_be_there(
    percent: str, tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "baseline.json"
    assert baseline.PROGRAM.main(["save", str(good), str(file), "--qq"]) == 2
    assert "No such file" not in capsys.readouterr().err
    assert baseline.PROGRAM.main(["save", str(good), str(file)]) == 0
    assert baseline.PROGRAM.main(["compare", str(good), str(file), f"--percent={percent}"]) == 2
    assert f"--percent: '{percent}' is not a percentage" in capsys.readouterr().err


def test_another_device_is_not_compared(tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "baseline.json"
    baseline.PROGRAM.main(["save", str(run_folder(tmp_path / "theirs", 1, {}, device="NVIDIA H200")), str(file)])
    assert baseline.PROGRAM.main(["compare", str(good), str(file)]) == 2
    assert "PAIRS: not compared: device cpu, in the baseline NVIDIA H200" in capsys.readouterr().err
