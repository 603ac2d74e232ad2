"""Records a case's predicted iteration beside its measured one: `"predict": True` of a case.

The controller runs without the simulation: `python -m simulation predict` predicts in a process of its own, which reads
the job from a file and answers in JSON.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError

from common.errors import in_brief
from protocol.outcome import Block, JobOutcome, Paragraph, Table, TableCell
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.results.outcomes import CaseLike, device_of, measured_case, measured_round, outcome_of
from run_benchmarks.results.records import PredictedPart, PredictionRecord, RoundRecord

TIME_LIMIT_S = 300.0
UNKNOWN = "no iteration of its benchmark can be predicted"
_ERROR = "error: "  # before each mistake on stderr


class _Against(BaseModel):
    case: str
    measured_ms: float
    deviates: str | None
    parts: list[PredictedPart]
    sentence: str


class _Answer(BaseModel):
    """The fields that are read of what `predict --json` prints."""

    predicted_ms: float
    low_ms: float
    high_ms: float
    notes: list[str]
    against: list[_Against] = []


def prediction_of(case: CaseLike, passed: Sequence[RoundRecord], run_folder: Path) -> PredictionRecord:
    """The prediction of a case, beside its rounds that passed; `run_folder` has their records."""
    outcome = outcome_of(case)
    if not isinstance(outcome, JobOutcome):
        return PredictionRecord(problem=UNKNOWN)
    if not passed:
        return PredictionRecord(problem="no round passed, so that neither the device nor a time is known")
    try:
        job = {
            **outcome.described_job(measured_case(case), [measured_round(each) for each in passed]),
            "gpu": device_of(passed),
        }
        beside = _asked(case.name, job, run_folder)
        alone = _asked(case.name, job, None) if beside.problem else beside
        if alone.problem or not beside.problem:
            return beside
        return alone.model_copy(
            update={"sentences": [*alone.sentences, f"Not beside the measured one: {beside.problem}"]}
        )
    except Exception as error:  # noqa: BLE001 - a prediction is not the run's end
        return PredictionRecord(problem=in_brief(error))


def _asked(name: str, job: Mapping[str, JsonValue], run_folder: Path | None) -> PredictionRecord:
    """The answer of `python -m simulation predict`, beside the iterations in a run's folder if there is one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        against = ["--against", str(run_folder.absolute())] if run_folder is not None else []
        words = ["--job", str(file), *against, "--json"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "simulation", "predict", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return PredictionRecord(problem=in_brief(error))
        said = [line.removeprefix(_ERROR) for line in done.stderr.splitlines() if line.startswith(_ERROR)]
        last = done.stderr.strip().splitlines()[-1:] or [f"predict ended with exit code {done.returncode}"]
        problem = "; ".join(said or last)[:500].replace(f"{file}: ", "")
        if done.returncode:
            return PredictionRecord(problem=problem)
    try:
        return _record(name, _Answer.model_validate_json(done.stdout))
    except ValidationError as error:
        return PredictionRecord(problem=in_brief(error))


def _record(name: str, answer: _Answer) -> PredictionRecord:
    its = next((each for each in answer.against if each.case == name), None)
    values: dict[str, Any] = answer.model_dump(exclude={"notes", "against"})
    if its is None:
        return PredictionRecord(**values, sentences=["It measured no iteration.", *answer.notes])
    between = f"predicted {answer.predicted_ms:.1f} ms ({answer.low_ms:.1f} to {answer.high_ms:.1f} in 9 of 10 cases)"
    sentence = f"An iteration: {between}; {its.sentence.removeprefix(f'{name}: ')}."
    beside = its.model_dump(include={"measured_ms", "deviates", "parts"})
    return PredictionRecord(**values, **beside, sentences=[sentence, *answer.notes])


def prediction_blocks(found: PredictionRecord) -> list[Block]:
    """The section of a case's report."""
    rows = [
        ("iteration", found.predicted_ms, found.measured_ms),
        *((each.part, each.predicted_ms, each.measured_ms) for each in found.parts),
    ]
    cells = tuple(
        (
            TableCell(value=part), TableCell(value=predicted), TableCell(value=measured),
            TableCell(value=measured - predicted, is_bad=part == found.deviates),
        )
        for part, predicted, measured in rows
        if predicted is not None and measured is not None
    )  # fmt: skip
    said: list[Block] = [Paragraph(text=sentence) for sentence in found.sentences]
    columns = ("part", "predicted, ms", "measured, ms", "longer by, ms")
    return [*said, Table(title="predicted and measured", columns=columns, rows=cells)] if cells else said
