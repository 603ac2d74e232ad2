"""A baseline keeps a training's curves; a later run is the same training, or departs at a step, metric and rank."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.baseline_file import Baseline, load, save
from protocol.outcome import MeasuredCase, MeasuredRound
from run_benchmarks.results.standards import against_baseline, case_baseline
from training.benchmarks.driver.training.measuring.curve_records import Curve, CurveVerdict, compare_curves, curve_of

FILE = Path("good.json")
RANKS, LAST = 4, 200


def _case(**config: Any) -> Any:
    settings = {"seed": 1, "vary_seed": False, "learning_rate": 1e-3, **config}
    return SimpleNamespace(name="A", model="llama", framework="pytorch", config=settings, nnodes=1, nproc=RANKS)


def _steps(seed: int, *, noise: float = 0.0, change: Any = None) -> list[dict[str, Any]]:
    """A curve that falls from 5 to 1, seen by ranks whose losses scatter by 5 % with the seed's samples."""
    samples, rounding = random.Random(seed), random.Random(f"{seed} {noise}")
    found = []
    for step in range(1, LAST + 1):
        mean = 1 + 4 * 0.98**step
        ranks = [mean * (1 + samples.gauss(0, 0.05)) * (1 + rounding.gauss(0, noise)) for _ in range(RANKS)]
        row: dict[str, Any] = {"step": step, "rank_losses": ranks}
        if step % 50 == 0:
            row |= {"data_order": [f"{seed}o{rank}" for rank in range(RANKS)], "eval_loss": mean}
            row |= {"data": [f"{seed}d{rank}" for rank in range(RANKS)]}
        if change is not None:
            change(step, row)
        row.setdefault("loss", sum(row["rank_losses"]) / RANKS)
        found.append(row)
    return found


def _round(steps: list[dict[str, Any]], number: int = 1, **metrics: Any) -> Any:
    speed = {"throughput(ips)_raw": 100.0}
    return SimpleNamespace(round=number, metrics=speed | metrics, steps=steps, nodes=[], devices=["cpu"], partial=None)


def _against(now: Any, then: list[Any], **config: Any) -> Any:
    case = _case(**config)
    known = Baseline(saved_ms=0, cases=(case_baseline("run1", case, then),))
    return against_baseline(case, [now], FILE, known, 10)


def _said(now: Any, then: list[Any], **config: Any) -> list[str]:
    sentences: list[str] = _against(now, then, **config).sentences
    return sentences


def test_the_same_training_is_said_to_be_the_same_and_passes() -> None:
    found = _against(_round(_steps(1, noise=0.005)), [_round(_steps(1))])
    assert not found.is_below
    assert [row.what for row in found.rows] == ["training loss from step 21 on", "throughput(ips)_raw"]
    assert found.sentences[0] == "all 2 measurements are within 10 % of the baseline good.json"
    assert found.sentences[1].startswith("same training as the reference: the loss is within 0.")
    assert found.sentences[1].endswith(" in the mean of the steps 21 to 200 (allowed 2 %)")


def _rank_2_is_off(step: int, row: dict[str, Any]) -> None:
    if step >= 63:
        row["rank_losses"][2] *= 1.06


def _all_are_off_late(step: int, row: dict[str, Any]) -> None:
    if step >= 185:
        row["rank_losses"] = [1.04 * loss for loss in row["rank_losses"]]


def _off_before_the_rule_begins(step: int, row: dict[str, Any]) -> None:
    if step < 21:
        row["rank_losses"] = [2 * loss for loss in row["rank_losses"]]


def _evaluates_worse(step: int, row: dict[str, Any]) -> None:
    if step == 150:
        row["eval_loss"] *= 1.2


def _other_order(step: int, row: dict[str, Any]) -> None:
    if step >= 100 and "data_order" in row:
        row["data_order"][1] = "x"


def _other_data(step: int, row: dict[str, Any]) -> None:
    if step == 150:
        row["data"][3] = "x"


@pytest.mark.parametrize(
    ("change", "begin", "end"),
    [
        (_rank_2_is_off, "at step 63: loss, most on rank 2, is ", "in the mean of the steps 57 to 74, allowed 2 %"),
        (_all_are_off_late, "at step 185: loss is ", "in the mean of the steps 183 to 200, allowed 2 %"),
        (_evaluates_worse, "at step 150: eval_loss is ", "in the mean of the steps 50 to 200, allowed 2 %"),
        (_other_order, "at step 100: the samples of rank 1 are others", ""),
        (_other_data, "at step 150: the data of the samples of rank 3 are others", ""),
    ],
)
def test_the_first_step_metric_and_rank_that_depart_are_named(change: Any, begin: str, end: str) -> None:
    found = _against(_round(_steps(1, change=change)), [_round(_steps(1))])
    assert found.is_below and found.rows[0].below and not found.rows[1].below
    assert found.sentences[0].startswith(f"the training departs from the reference {begin}")
    assert found.sentences[0].endswith(end)


def test_a_right_answer_where_the_reference_had_none_is_no_other_training() -> None:
    none = {"eval_accuracy": {30: 0.0, 40: 0.0}}
    then = Curve(seed=1, steps=[*range(21, 41)], loss=[1.0] * 20, metrics=none)
    for accuracy, departs in ((0.001, False), (0.1, True)):
        now = then.model_copy(update={"metrics": {"eval_accuracy": {30: accuracy, 40: accuracy}}})
        found = compare_curves(now, [then])
        assert isinstance(found, CurveVerdict) and found.departs is departs, found


def test_the_rule_begins_with_step_21() -> None:
    assert not _against(_round(_steps(1, change=_off_before_the_rule_begins)), [_round(_steps(1))]).is_below
    short = _said(_round(_steps(1)[:20]), [_round(_steps(1))])
    assert any(said.endswith("they have no logged step from 21 on in common") for said in short)


def test_other_data_files_are_another_training() -> None:
    (said, *_) = _said(_round(_steps(1), data_sha256="aa"), [_round(_steps(1), data_sha256="bb")])
    assert said.endswith("before step 1: its data files are others (hash aa, in the reference bb)")


def test_other_seeds_are_compared_with_what_the_seeds_of_the_reference_scatter() -> None:
    varied: dict[str, Any] = {"vary_seed": True}
    reference = [_round(_steps(seed), seed) for seed in (1, 2, 3, 4, 5)]
    same = _said(_round(_steps(9), 9), reference, **varied)
    assert any(said.startswith("same training as the reference: with the seed 9 the loss") for said in same)

    def wrong(step: int, row: dict[str, Any]) -> None:
        if step >= 185:
            row["rank_losses"] = [1.5 * loss for loss in row["rank_losses"]]

    found = _against(_round(_steps(9, change=wrong), 9), reference, **varied)
    assert found.is_below
    assert "departs from the reference at step 183: loss is " in found.sentences[0]
    assert found.sentences[0].endswith(" by the 5 seeds of the reference")
    few = _said(_round(_steps(9), 9), reference[:2], **varied)
    assert any("it has the seed 9, the reference 1, 2; expected the same seed, or a reference of 3" in it for it in few)


def test_a_false_alarm_by_seeds_is_rare() -> None:
    alarms = 0
    for first in range(0, 600, 6):
        reference = [_round(_steps(seed), seed + 1) for seed in range(first, first + 5)]
        now = _round(_steps(first + 5), 99)
        alarms += _against(now, reference, vary_seed=True).is_below
    assert alarms <= 5, "1 % of the runs of the same training are expected to be called another"


def test_curves_survive_the_file_and_a_long_one_is_thinned(tmp_path: Path) -> None:
    case, measured = _case(), _round(_steps(1))
    saved = case_baseline("run1", case, [measured])
    save([saved], tmp_path / "good.json")
    assert load(tmp_path / "good.json").cases == (saved,)
    long = [{"step": step, "loss": 2.0, "rank_losses": [2.0] * 100} for step in range(1, 5001)]
    measured_case = MeasuredCase(name="A", config=case.config, nnodes=1, nproc=1)
    curve = curve_of(measured_case, MeasuredRound(number=1, metrics={}, steps=long, hosts={}), ())
    assert curve is not None
    assert curve.steps == list(range(1, 5001, 4))


def test_whatever_a_host_logs_is_no_error() -> None:
    broken: list[Any] = [
        {"step": "x", "loss": 1.0}, {"step": 30, "loss": "NaN"}, {"loss": 2.0}, {"step": 31, "loss": 2.0, "data": 7},
        {"step": 32, "loss": 2.0, "rank_losses": ["a"], "data": [None], "data_order": {}}, {"step": True, "loss": 1.0},
    ]  # fmt: skip
    assert _said(_round(broken), [_round(broken)])
    assert _said(_round(broken), [_round(_steps(1))])
    assert _said(_round(_steps(1)), [_round(broken)])
