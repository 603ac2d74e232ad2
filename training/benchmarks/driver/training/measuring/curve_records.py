"""Makes the curves of a training from its rounds, for a baseline, and compares those of two. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from pydantic import JsonValue, ValidationError

from protocol.default_outcome import is_measured
from protocol.outcome import Change, Comparison, MeasuredCase, MeasuredRound, Reference
from training.benchmarks.driver.training.measuring.curves import ALLOWED, Curve, CurveVerdict, compare_curves

CURVE_ENTRY = "training curve"
# Values that a baseline keeps of one curve; of a longer one every second, fourth, eighth ... step.
MAX_POINTS, MAX_VALUES = 2000, 200_000


def curve_of(case: MeasuredCase, measured: MeasuredRound, metrics: Sequence[str]) -> Curve | None:
    """The curve of a round; None where its steps hold no losses. `metrics` are the names of those of an evaluation."""
    steps = [row for row in measured.steps if isinstance(row.get("step"), int) and is_measured(row.get("loss"))]
    if not steps:
        return None
    every = max(1, math.ceil(len(steps) / _kept(steps)))
    stride = 1 << (every - 1).bit_length()
    kept = steps[::stride]
    checked = [row for row in steps if isinstance(row.get("data"), list)]
    files = measured.metrics.get("data_sha256")
    return Curve(
        seed=seed_of_round(case.config, measured.number),
        steps=[int(row["step"]) for row in kept],
        loss=[float(row["loss"]) for row in kept],
        ranks=_rank_losses(kept),
        metrics=_evaluations(checked, metrics),
        data={int(row["step"]): [*_texts(row.get("data_order")), *_texts(row["data"])] for row in checked},
        files=files if isinstance(files, str) else None,
    )


def _rank_losses(rows: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """The losses of each rank by step; none where a step lacks some."""
    ranks = [_numbers(row.get("rank_losses")) for row in rows]
    return ranks if ranks[0] and len({len(row) for row in ranks}) == 1 else []


def _evaluations(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> dict[str, dict[int, float]]:
    """The values of those metrics that have any, by step."""
    found = {}
    for name in metrics:
        values = {int(row["step"]): float(row[name]) for row in rows if is_measured(row.get(name))}
        if values:
            found[name] = values
    return found


def seed_of_round(config: Mapping[str, object], number: int) -> int:
    """The seed of a round, counted from 1: with vary_seed each has its own."""
    seed = config.get("seed")
    first = seed if isinstance(seed, int) else 0
    return first + number - 1 if config.get("vary_seed") else first


def curve_reference(curves: Sequence[Curve]) -> dict[str, Reference]:
    """The entry of a baseline for these curves; none without curves. Its value is the mean loss, in nats."""
    means = [fmean(curve.loss) for curve in curves]
    if not means or min(means) <= 0:
        return {}
    details: dict[str, JsonValue] = {"curves": [curve.model_dump(mode="json") for curve in curves]}
    middle = sorted(means)[len(means) // 2]
    return {
        CURVE_ENTRY: Reference(
            value=middle, low=min(means), high=max(means), n=len(means), unit="nats", better="lower", details=details
        )
    }


def compare_references(now: Reference | None, then: Reference | None) -> Comparison:
    """The curves of two entries: each round of `now` against all of `then`."""
    if now is None or then is None:
        return Comparison(changes=(), sentences=())
    known = _curves(then)
    results = [compare_curves(curve, known) for curve in _curves(now)]
    verdicts = [result for result in results if isinstance(result, CurveVerdict)]
    remarks = list(dict.fromkeys(result for result in results if isinstance(result, str)))
    departed = [verdict for verdict in verdicts if verdict.departs]
    worst = max(departed or verdicts, key=lambda verdict: verdict.deviation, default=None)
    if worst is None:
        return Comparison(changes=(), sentences=(), remarks=tuple(remarks))
    if not departed:
        remarks.insert(0, worst.sentence)
    change = Change(
        what="training loss from step 21 on",
        now=_mean(worst.now),
        then=_mean(worst.then),
        percent=100 * worst.deviation,
        is_regression=bool(departed),
    )
    sentences = dict.fromkeys(f"the training {verdict.sentence}" for verdict in departed)
    return Comparison(changes=(change,), sentences=tuple(sentences), remarks=tuple(remarks))


def _mean(loss: float) -> Reference:
    """A mean loss in nats as a measurement."""
    value = max(loss, ALLOWED * 1e-9)
    return Reference(value=value, low=value, high=value, n=1, unit="nats", better="lower")


def _curves(entry: Reference) -> list[Curve]:
    """The curves of an entry; those of another form are left out."""
    kept = entry.details.get("curves")
    found = []
    for each in kept if isinstance(kept, list) else []:
        try:
            found.append(Curve.model_validate(each))
        except ValidationError:
            continue
    return found


def _kept(steps: Sequence[Mapping[str, object]]) -> int:
    ranks = len(_numbers(steps[0].get("rank_losses"))) or 1
    return min(MAX_POINTS, MAX_VALUES // ranks)


def _numbers(values: object) -> list[float]:
    if not isinstance(values, list) or not all(map(is_measured, values)):
        return []
    return [float(value) for value in values]


def _texts(values: object) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list) else []
