"""`compare`: what it says of equal runs and of a true change, over many draws; its words, its rules, its exit code."""

import itertools
import math
import random
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest

from common.statistics import student_quantile
from protocol.baseline_file import save
from protocol.default_outcome import is_measured
from run_benchmarks.compare import comparing
from run_benchmarks.compare.before import RunsBefore
from run_benchmarks.compare.comparing import (
    CaseResult,
    between_rounds,
    between_runs,
    compare,
    holm,
    of_folders,
    spread_of,
)
from run_benchmarks.compare.rules import Rules, read_rules
from run_benchmarks.errors import InputProblems
from run_benchmarks.history.entries import case_entries
from run_benchmarks.history.recording import FILE, default_url, rebuild
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.standards import case_baseline
from tests.run_benchmarks import calling
from tests.run_benchmarks.results.recorded_runs import OTHERS, a_run, on_disk
from tests.tiers import most, samples


class Cluster:
    """A cluster with 1 % noise between rounds and a spread between runs, in percent, whose mean is 100."""

    def __init__(self, seed: int, between_runs: float) -> None:
        self._random, self._between = random.Random(seed), between_runs

    def run(self, name: str, level: float = 100.0, rounds: int = 5) -> LoadedRun:
        center = level * (1 + self._random.gauss(0, self._between) / 100)
        values = [center * (1 + self._random.gauss(0, 0.01)) for _ in range(rounds)]
        others = [[center * (1 + self._random.gauss(0, 0.01)) for _ in OTHERS] for _ in range(rounds)]
        return a_run(name, values, others)


def the_case(first: LoadedRun, second: LoadedRun, history: Sequence[LoadedRun] = ()) -> CaseResult:
    (result,) = compare([first], [second], of_folders(history), Rules())
    return result


@pytest.mark.parametrize("spread", [0.0, pytest.param(0.5, marks=pytest.mark.nightly), 1.0])
def test_equal_runs_are_said_to_differ_in_five_percent_whatever_the_spread_between_runs(spread: float) -> None:
    draws, alarms, beside = len(samples(30, 1000)), 0, 0
    for seed in range(draws):
        cluster = Cluster(seed, spread)
        history = [cluster.run(f"run{index}") for index in range(6)]
        result = the_case(cluster.run("runA"), cluster.run("runB"), history)
        alarms += result.word in ("better", "worse")
        beside += any(each.word in ("better", "worse") for each in result.metrics if not each.metric.is_key)
    assert alarms <= most(draws, 0.05)
    assert beside <= most(draws, 0.05), "all the others together"


def test_without_a_history_rounds_are_the_units_and_it_says_that_this_may_err() -> None:
    draws = len(samples(30, 1000))
    results = [the_case((cluster := Cluster(seed, 0)).run("runA"), cluster.run("runB")) for seed in range(draws)]
    assert sum(each.word in ("better", "worse") for each in results) <= most(draws, 0.05)
    assert all("the spread between runs is not known" in each.reason for each in results)


@pytest.mark.parametrize("runs_before", [0, 6])
def test_a_change_of_three_percent_at_five_rounds_is_found_in_95_percent(runs_before: int) -> None:
    draws, found = len(samples(30, 1000)), 0
    for seed in range(draws):
        cluster = Cluster(seed, 0)
        history = [cluster.run(f"run{index}") for index in range(runs_before)]
        found += the_case(cluster.run("runA"), cluster.run("runB", level=97), history).word == "worse"
    assert draws - found <= most(draws, 0.05)


def test_an_exact_permutation_test_agrees_on_what_chance_brings() -> None:
    source, apart = random.Random(5), []
    for _ in samples(20, 200):
        values = (
            [source.gauss(100, 1) for _ in range(5)],
            [source.gauss(source.choice((100, 101.5)), 1) for _ in range(5)],
        )
        found = between_rounds(*values)
        assert found is not None
        everything, gap = values[0] + values[1], abs(fmean(values[0]) - fmean(values[1])) - 1e-9
        splits = [sum(chosen) / 5 for chosen in itertools.combinations(everything, 5)]
        exact = sum(abs(mean - (sum(everything) / 5 - mean)) >= gap for mean in splits) / len(splits)
        apart.append((exact, found.p_value))
    near = [abs(one - other) for one, other in apart if min(one, other) < 0.1]
    assert len(near) >= 3 and max(near) < 0.04, "where it decides; in the middle either has its own steps"
    assert sum((one < 0.05) != (other < 0.05) for one, other in apart) <= len(apart) / 20


def stepping(run_id: str, source: random.Random, level: float, steps: int = 400) -> LoadedRun:
    """A run of one round whose steps follow one another: AR(1) 0.5, with 4 % of noise and a slow beginning."""
    noise, values = source.gauss(0, 4), []
    for step in range(steps):
        noise = 0.5 * noise + math.sqrt(1 - 0.5**2) * source.gauss(0, 4)
        values.append(level + noise - 20 * (step < steps // 11))
    run = a_run(run_id, [fmean(values)])
    made = [
        each.model_copy(update={"steps": [{"seq/s_interval": value} for value in values]})
        for each in run.rounds["PAIRS"]
    ]
    return LoadedRun(folder=run.folder, record=run.record, rounds={"PAIRS": made})


def test_single_rounds_are_compared_by_means_of_batches_of_their_steps() -> None:
    draws, alarms, found = len(samples(30, 1000)), 0, 0
    for seed in range(draws):
        source = random.Random(seed)
        alarms += the_case(stepping("runA", source, 100), stepping("runB", source, 100)).word in ("better", "worse")
        found += the_case(stepping("runA", source, 100), stepping("runB", source, 97)).word == "worse"
    assert alarms <= most(draws, 0.05) and draws - found <= most(draws, 0.05)
    source = random.Random(1)
    told = the_case(stepping("runA", source, 100), stepping("runB", source, 97))
    assert "its steps were compared" in told.reason and "the spread between runs is not known" in told.reason
    few = the_case(stepping("runA", source, 100, steps=100), stepping("runB", source, 97, steps=100))
    assert few.word == "cannot tell", "means of fewer steps are not independent"


def test_holm_s_own_example_and_the_units_that_would_tell() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert {name: round(value, 9) for name, value in adjusted.items()} == {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    found = between_rounds([99.0, 100.0, 101.0], [99.0, 100.0, 101.0])
    assert found is not None and found.p_value == 1.0
    # t of 97.5 % is 2.0106 with 48 degrees and 2.0930 with 19: 2.02 * sqrt(2 / n) <= 0.8 first holds near n = 13.
    needed = found.needed(0.8, 0.95)
    assert needed is not None and 12 <= needed <= 15
    assert between_rounds([1.0], [2.0, 3.0]) is None and between_runs([1.0], [2.0], None) is None
    assert spread_of([[1.0], [2.0]]) is None


def test_the_units_that_would_tell_are_found_in_a_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantile takes milliseconds, a network case has hundreds of metrics, and up to 10,000 units are thought of."""
    found = between_rounds([99.0, 100.0, 101.0], [99.0, 100.0, 101.0])
    assert found is not None
    widths = (3.0, 0.8, 0.2, 0.05, 0.0278, 0.0277, 0.001)
    plain = {}
    for width in widths[:3]:
        plain[width] = next(n for n in range(2, 999) if student_quantile(0.025, 2 * n - 2) * math.sqrt(2 / n) <= width)
    tries = 0

    def counted(share: float, degrees: int) -> float:
        nonlocal tries
        tries += 1
        return student_quantile(share, degrees)

    monkeypatch.setattr(comparing, "student_quantile", counted)
    needed = {width: found.needed(width, 0.95) for width in widths}
    assert plain.items() <= needed.items() and needed[0.0278] is not None and needed[0.001] is None
    assert tries <= 20 * len(widths)


def test_values_whose_squares_are_no_numbers_and_a_mean_of_0_are_not_compared() -> None:
    huge = the_case(a_run("runA", [1e200, 1.1e200]), a_run("runB", [1.5e308, 1.5e308]))
    assert huge.word == "cannot tell" and not is_measured(10**400) and not is_measured(math.nan)
    for scale in (1e100, 1e-150):  # the squares of these are numbers, those of their variances are not
        found = between_rounds([scale, 1.1 * scale, 1.2 * scale], [scale, 1.3 * scale, 1.6 * scale])
        assert found is not None and found.degrees == 2  # (s1 + s2)^2 / (s1^2 / 2 + s2^2 / 2) = 2.44, s1 : s2 = 1 : 9
    none = the_case(a_run("runA", [0.0] * 3), a_run("runB", [1.0, 1.1, 0.9]))
    assert none.word == "cannot tell" and none.reason == "its mean in A is 0: no change of it has a percentage"


def test_better_worse_same_and_cannot_tell_follow_from_the_measured_values() -> None:
    steady = a_run("runA", [100.0, 100.1, 99.9])
    words = {
        "same": a_run("runB", [100.1, 100.0, 100.2]),
        "better": a_run("runB", [110.0, 110.1, 109.9]),
        "worse": a_run("runB", [90.0, 90.1, 89.9]),
        "cannot tell": a_run("runB", [90.0, 110.0, 101.0]),
        "not comparable": a_run("runB", [100.0, 100.1, 99.9], train_steps=7),
    }
    results = {word: the_case(steady, other) for word, other in words.items()}
    assert {word: each.word for word, each in results.items()} == {word: word for word in words}
    assert {word for word, each in results.items() if each.fails} == {"worse", "not comparable"}
    assert "rounds on each side would tell" in results["cannot tell"].reason
    assert "train_steps" in results["not comparable"].reason
    lower = compare(
        [a_run("runA", [1.0] * 3, [[1, t] for t in (2.0, 2.01, 1.99)])],
        [a_run("runB", [1.0] * 3, [[1, t] for t in (1.0, 1.01, 0.99)])],
        of_folders([]),
        Rules(),
    )[0]
    (times,) = (each for each in lower.metrics if each.metric.name == "step_time_p50")
    assert times.word == "better" and times.percent == pytest.approx(50), "of times the lower is better"
    once = the_case(a_run("runA", [100.0]), a_run("runB", [100.0]))
    assert once.word == "cannot tell" and "fewer than two rounds" in once.reason


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nnodes": 6}, "nnodes 6"),
        ({"config": {"collective": "all_gather"}}, "collective 'all_gather'"),
        ({"config": {"collective": "all_reduce", "sizes": "1M"}}, "sizes '1M'"),
        ({"config": {"collective": "all_reduce", "slow_percent": 5}}, ""),
    ],
)
def test_a_bandwidth_is_compared_with_that_of_the_same_collective_sizes_and_hosts(
    changed: dict[str, object], said: str
) -> None:
    """The baseline of a network case names these in its entries; its best bandwidth, in compare and history, cannot."""
    plain = {"model": "network", "config": {"collective": "all_reduce"}, "nnodes": 4}
    first, second = (
        LoadedRun(
            folder=run.folder,
            record=run.record.model_copy(update={"cases": [run.record.cases[0].model_copy(update=plain | more)]}),
            rounds=run.rounds,
        )
        for run, more in ((a_run("runA", [1.0] * 3), {}), (a_run("runB", [1.0] * 3), changed))
    )
    result = the_case(first, second)
    assert (result.word == "not comparable") == bool(said) and said in result.reason
    kinds = {entry.case["kind"] for run in (first, second) for entry in case_entries(run)}
    assert len(kinds) == 1 + bool(said)


def test_runs_of_before_count_only_where_they_were_made_alike() -> None:
    pair = a_run("runA", [100.0] * 3), a_run("runB", [101.5] * 3)
    wild = [a_run(f"run{index}", [value] * 3) for index, value in enumerate((90.0, 100.0, 110.0))]
    assert the_case(*pair).word == "better"
    assert the_case(*pair, wild).word == "cannot tell", "runs differ by more than that"
    others = [a_run(f"run{index}", [value] * 3, train_steps=9) for index, value in enumerate((90.0, 100.0, 110.0))]
    assert the_case(*pair, others).word == "better"
    changed = [
        LoadedRun(
            folder=each.folder,
            record=each.record.model_copy(update={"code_digest": each.folder.name}),
            rounds=each.rounds,
        )
        for each in wild
    ]
    assert the_case(*pair, changed).word == "better", "a change of code is no spread between runs"


def test_settings_at_which_a_benchmark_fails_are_not_comparable_and_end_no_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = a_run("run20261101000000", [100.0, 100.1, 99.9])
    no_tests = run.record.cases[0].model_copy(update={"model": "base", "config": {"tests": 9}})
    odd = LoadedRun(folder=run.folder, record=run.record.model_copy(update={"cases": [no_tests]}), rounds=run.rounds)
    result = the_case(run, odd)
    assert result.word == "not comparable" and "'int' object is not iterable" in result.reason and result.fails
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(comparing, "holm", lambda _: 1 / 0)  # a mistake of this project is not the benchmark's
        the_case(run, run)


def test_the_command_has_an_exit_code_for_ci_and_names_a_damaged_folder(tmp_path: Path) -> None:
    first = on_disk(tmp_path, a_run("run20261101000000", [100.0, 100.1, 99.9]))
    worse = on_disk(tmp_path, a_run("run20261102000000", [90.0, 90.1, 89.9]))
    same = on_disk(tmp_path, a_run("run20261103000000", [100.0, 100.1, 99.9]))
    damaged = on_disk(tmp_path, a_run("run20261104000000", [1.0]))
    (damaged / "PAIRS" / "round1" / "round.json").write_text("{")
    with pytest.raises(LoadError, match=r"round1/round\.json: is no RoundRecord"):
        load_run(damaged)
    said = calling.call("compare", str(first), str(worse))
    assert said.exit_code == 1 and "PAIRS: worse" in said.output and "which fails" in said.output
    assert "left out of the history" in said.output and "round1/round.json" in said.output
    rules = tmp_path / "rules.toml"
    rules.write_text('[cases."PAIR*"]\nfail_on = []\n')
    assert calling.call("compare", str(first), str(worse), "--rules", str(rules)).exit_code == 0
    assert calling.call("compare", str(first), str(same)).exit_code == 0
    assert "names no run on one side" in calling.call("compare", str(first), ",").complaint


def test_the_spread_between_runs_is_that_of_the_history_whose_folders_may_be_gone(tmp_path: Path) -> None:
    def compared(before: Sequence[float]) -> tuple[str, Path]:
        root = tmp_path / str(len(before))
        folders = [on_disk(root, a_run(f"run2026110100000{at}", [value] * 3)) for at, value in enumerate(before)]
        pair = [on_disk(root, a_run(f"run2026110200000{at}", [value] * 3)) for at, value in enumerate((100, 101.5))]
        assert [problem for _, problem in rebuild(root, "0" * 8, default_url(root))] == [""] * (len(before) + 2)
        for folder in folders:
            shutil.rmtree(folder)
        return calling.call("compare", *map(str, pair)).output, root

    said, root = compared((90.0, 100.0, 110.0))
    assert "PAIRS: cannot tell" in said and "is not known" not in said, "runs differ by more than that"
    said, _ = compared((90.0,))
    assert "PAIRS: better" in said and "is not known" in said, "the runs that are compared are none of before"
    pair = [str(folder) for folder in sorted(root.glob("run*"))]
    (root / FILE).write_text("no database")
    said = calling.call("compare", *pair).output
    assert "PAIRS: better" in said and "that of the run folders alone" in " ".join(said.split())
    (root / FILE).unlink()
    said = calling.call("compare", *pair).output
    assert "PAIRS: better" in said and "alone" not in said and not (root / FILE).exists(), "it makes none"


def test_a_history_that_does_not_answer_is_left_after_a_time_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [load_run(on_disk(tmp_path, a_run(f"run2026110200000{at}", [100.0] * 3))) for at in range(2)]
    with sqlite3.connect(tmp_path / FILE, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        (result,) = compare([pair[0]], [pair[1]], RunsBefore(default_url(tmp_path), pair, seconds=1.0), Rules())
    assert result.word == "same"
    assert "its database did not answer within 1 s" in " ".join(capsys.readouterr().err.split())


def test_a_baseline_is_a_file_or_its_name_in_the_results_folder(tmp_path: Path) -> None:
    root, file = tmp_path / "result", tmp_path / "test_conf.py"
    file.write_text(f"FLAGPERF_LOG_PATH_HOST = {str(root)!r}\n")
    good, now = a_run("run20261101000000", [100.0, 100.1, 99.9]), a_run("run20261102000000", [90.0, 90.1, 89.9])
    on_disk(root, good), on_disk(root, now)
    (case,) = good.record.cases
    save([case_baseline(good.record.run_id, case, good.rounds["PAIRS"])], root / "good.json")
    (root / "bad.json").write_text("{}")

    def call(word: str) -> calling.Answer:
        return calling.call("--test-conf", str(file), "compare", now.record.run_id, "--baseline", word)

    for word in ("good", "good.json", str(root / "good.json")):
        assert call(word).exit_code == 1 and "PAIRS: worse" in call(word).output, word
    for word, expected in (("god", "did you mean 'good'"), ("bad", "is no baseline")):
        failed = call(word)
        assert failed.exit_code == 2 and expected in failed.complaint, word


def test_every_mistake_of_the_rules_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('same_percent = -1\nfail_on = ["slower"]\nwhen = "__import__(\'os\')"\n')
    with pytest.raises(InputProblems) as caught:
        read_rules(file)
    assert {each.key for each in caught.value.problems} == {"same_percent", "fail_on.0", "when"}
    file.write_text("= 3")
    with pytest.raises(InputProblems, match="cannot be read as TOML"):
        read_rules(file)
