"""Makes the curves of a training from its rounds, for a baseline, and compares those of two. Needs no torch.

With the reference's seed ranks read the same samples in the same order, and the curves are compared step by step:
FlagPerf's rule for its large language models is that from step 21 on the loss is within 2 % of the reference's, in the
mean over the steps of the absolute relative differences (training/nvidia/llama3_8B-megatron/README.md there). It holds
here for all steps together, and for each of up to ten equal pieces, so that a late departure is not averaged away. With
other seeds the losses of the pieces are compared with those of several reference seeds, by Student's t.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from common.statistics import student_quantile
from protocol.default_outcome import is_measured
from protocol.outcome import Change, Comparison, MeasuredCase, MeasuredRound, Reference

FIRST_STEP = 21
ALLOWED = 0.02
PIECES, POINTS_OF_A_PIECE = 10, 5
MIN_SEEDS = 3
# Chance that a run of the same training is said to depart, over all of its pieces.
ALPHA = 0.01
# How many times as much as the others a rank has to be off: to be named for a departure, and to be one by itself.
_NAMED, _ALONE = 1.5, 4.0


class Curve(BaseModel, frozen=True, extra="forbid"):
    """The curve of a training, by its logged steps.

    `loss` is the mean over the ranks, `ranks` the loss of each data-parallel rank (empty where it was not logged),
    `metrics` those of the evaluations, by step. `data` has after some steps the hashes of the samples and of the last
    micro-batch of each data-parallel rank. `files`: a hash over the data files, None for synthetic data.
    """

    seed: int
    steps: list[int]
    loss: list[float]
    ranks: list[list[float]] = []
    metrics: dict[str, dict[int, float]] = {}
    data: dict[int, list[str]] = {}
    files: str | None = None

    def series(self) -> dict[str, dict[int, float]]:
        """Each curve by its name: step and value."""
        return {"loss": dict(zip(self.steps, self.loss, strict=True)), **self.metrics}


@dataclass(frozen=True, kw_only=True, slots=True)
class CurveVerdict:
    """The result of a comparison; `sentence` says it. `deviation` is the mean relative difference of the loss, or of a
    statistical comparison the largest of a piece; `now` and `then` are the mean losses, in nats.
    """

    sentence: str
    departs: bool
    deviation: float
    now: float
    then: float


def compare_curves(now: Curve, then: Sequence[Curve]) -> CurveVerdict | str:
    """The verdict on one training; a sentence where it cannot be compared."""
    same = next((curve for curve in then if curve.seed == now.seed), None)
    if same is not None:
        return _step_by_step(now, same)
    seeds = {curve.seed: curve for curve in then}
    if len(seeds) < MIN_SEEDS:
        known = ", ".join(map(str, sorted(seeds)))
        return (
            f"the training was not compared with the reference: it has the seed {now.seed}, the reference {known};"
            f" expected the same seed, or a reference of {MIN_SEEDS} seeds (vary_seed)"
        )
    return _statistical(now, [*seeds.values()])


def _step_by_step(now: Curve, then: Curve) -> CurveVerdict | str:
    here, there = now.series()["loss"], then.series()["loss"]
    steps = [step for step in here if step in there and step >= FIRST_STEP]
    if not steps:
        return (
            f"the training was not compared with the reference: they have no logged step from {FIRST_STEP} on in common"
        )
    deviation = fmean(_relative(here[step], there[step]) for step in steps)
    found = _other_data(now, then) or _off(now, then)
    sentence = (
        f"departs from the reference {found}"
        if found
        else f"same training as the reference: the loss is within {100 * deviation:.2g} % in the mean of the steps"
        f" {steps[0]} to {steps[-1]} (allowed {100 * ALLOWED:g} %)"
    )
    return CurveVerdict(
        sentence=sentence,
        departs=bool(found),
        deviation=deviation,
        now=fmean(here[step] for step in steps),
        then=fmean(there[step] for step in steps),
    )


def _other_data(now: Curve, then: Curve) -> str:
    """Where the data differ first, in words; "" if they do not."""
    if files := _other_files(now, then):
        return files
    for step in sorted(now.data.keys() & then.data.keys()):
        here, there = now.data[step], then.data[step]
        ranks = len(here) // 2
        for place, (mine, known) in enumerate(zip(here, there, strict=False)):
            if mine != known:
                what = "the samples" if place < ranks else "the data of the samples"
                return f"at step {step}: {what} of rank {place % ranks} are others"
    return ""


def _other_files(now: Curve, then: Curve) -> str:
    """How the data files differ, in words; "" if they do not."""
    if now.files == then.files:
        return ""
    return f"before step 1: its data files are others (hash {now.files}, in the reference {then.files})"


def _off(now: Curve, then: Curve) -> str:
    """The first step, metric and rank that depart, in words; "" if none does."""
    found = []
    for name, here in now.series().items():
        there = then.series().get(name, {})
        steps = [step for step in sorted(here) if step in there and step >= FIRST_STEP]
        off = {step: _relative(here[step], there[step]) for step in steps}
        for piece in [*_pieces(steps), steps]:
            mean = fmean(off[step] for step in piece) if piece else 0.0
            if mean > ALLOWED:
                first = next(step for step in piece if off[step] > ALLOWED)
                rank = _rank_off(now, then, piece, _NAMED) if name == "loss" else None
                found.append((first, _in_words(name, first, rank, here[first], there[first], mean, piece)))
    found += _ranks_alone(now, then)
    return min(found, key=lambda each: each[0])[1] if found else ""


def _ranks_alone(now: Curve, then: Curve) -> list[tuple[int, str]]:
    """Ranks that are off where the mean of all is not."""
    found = []
    for piece in _pieces(_common(now, then)):
        rank = _rank_off(now, then, piece, _ALONE)
        if rank is None:
            continue
        here, there = _of_rank(now, rank), _of_rank(then, rank)
        off = {step: _relative(here[step], there[step]) for step in piece}
        mean = fmean(off.values())
        if mean > ALLOWED:
            first = next(step for step in piece if off[step] > ALLOWED)
            found.append((first, _in_words("loss", first, rank, here[first], there[first], mean, piece)))
    return found


def _rank_off(now: Curve, then: Curve, piece: Sequence[int], times: float) -> int | None:
    """The rank that is off in these steps so many `times` as much as the others; None if no rank is."""
    ranks = min((len(row) for curve in (now, then) for row in curve.ranks), default=0)
    if ranks < 2 or not set(piece) <= set(_common(now, then)):
        return None
    off = []
    for rank in range(ranks):
        here, there = _of_rank(now, rank), _of_rank(then, rank)
        off.append(fmean(_relative(here[step], there[step]) for step in piece))
    worst = max(range(ranks), key=lambda rank: off[rank])
    others = median([value for rank, value in enumerate(off) if rank != worst])
    return worst if off[worst] > times * others else None


def _common(now: Curve, then: Curve) -> list[int]:
    """The steps from FIRST_STEP on of which both have the loss of each rank."""
    if not (now.ranks and then.ranks):
        return []
    return sorted(step for step in set(now.steps) & set(then.steps) if step >= FIRST_STEP)


def _of_rank(curve: Curve, rank: int) -> dict[int, float]:
    return {step: row[rank] for step, row in zip(curve.steps, curve.ranks, strict=True)}


def _in_words(
    name: str, step: int, rank: int | None, here: float, there: float, mean: float, piece: Sequence[int]
) -> str:
    whose = "" if rank is None else f", most on rank {rank},"
    return (
        f"at step {step}: {name}{whose} is {here:.4g}, in the reference {there:.4g}; it is off by {100 * mean:.2g} % in"
        f" the mean of the steps {piece[0]} to {piece[-1]}, allowed {100 * ALLOWED:g} %"
    )


def _statistical(now: Curve, then: Sequence[Curve]) -> CurveVerdict | str:
    here = now.series()["loss"]
    known = [curve.series()["loss"] for curve in then]
    steps = sorted(step for step in here.keys() & set.intersection(*map(set, known)) if step >= FIRST_STEP)
    if not steps:
        return (
            f"the training was not compared with the reference: they have no logged step from {FIRST_STEP} on in common"
        )
    pieces = _pieces(steps)
    quantile = student_quantile(ALPHA / (2 * len(pieces)), len(then) - 1)
    found, largest = next(filter(None, (_other_files(now, curve) for curve in then)), ""), 0.0
    for piece in pieces:
        mine = fmean(here[step] for step in piece)
        middle, limit = _expected(known, piece, quantile)
        largest = max(largest, _relative(mine, middle))
        if abs(mine - middle) > limit and not found:
            found = (
                f"at step {piece[0]}: loss is {mine:.4g} in the mean of the steps {piece[0]} to {piece[-1]}, expected"
                f" {middle:.4g} +- {limit:.2g} by the {len(then)} seeds of the reference"
            )
    sentence = (
        f"departs from the reference {found}"
        if found
        else f"same training as the reference: with the seed {now.seed} the loss of the steps {steps[0]} to {steps[-1]}"
        f" is where the {len(then)} seeds of the reference let expect it (off by {100 * largest:.2g} % at most)"
    )
    return CurveVerdict(
        sentence=sentence,
        departs=bool(found),
        deviation=largest,
        now=fmean(here[step] for step in steps),
        then=fmean(curve[step] for curve in known for step in steps),
    )


def _expected(known: Sequence[Mapping[int, float]], piece: Sequence[int], quantile: float) -> tuple[float, float]:
    """The middle and half the width of the interval that a further curve's mean over these steps is expected in."""
    means = [fmean(curve[step] for step in piece) for curve in known]
    return fmean(means), quantile * stdev(means) * math.sqrt(1 + 1 / len(means))


def _pieces(steps: Sequence[int]) -> list[Sequence[int]]:
    """Up to PIECES equal pieces of POINTS_OF_A_PIECE steps at least."""
    count = min(PIECES, len(steps) // POINTS_OF_A_PIECE) or min(1, len(steps))
    return [steps[len(steps) * part // count : len(steps) * (part + 1) // count] for part in range(count)]


def _relative(here: float, there: float) -> float:
    """The difference in parts of the reference's value, or of 1 where that is 0: one right answer, and none before."""
    return abs(here - there) / (abs(there) or 1.0)


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
