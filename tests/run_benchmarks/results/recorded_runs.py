"""Runs of one training on four hosts with made-up values, in memory and as result folders."""

from collections.abc import Sequence
from pathlib import Path

from run_benchmarks.results.key_figure import key_figure
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.metrics import combine
from run_benchmarks.results.records import RunRecord, Verdict, write_record
from tests.run_benchmarks.results.network_rounds import a_round, case

KEY, OTHERS = "throughput(sps)_raw", ("tokens_per_second_per_device", "step_time_p50", "mfu", "throughput(sps)_no_eval")


def a_run(run_id: str, values: Sequence[float], others: Sequence[Sequence[float]] = (), **config: object) -> LoadedRun:
    """A run of one training with these values of the key figure in its rounds."""
    rounds = [
        a_round([], **{KEY: value, **dict(zip(OTHERS, beside, strict=False))}).model_copy(
            update={"round": number, "run_id": run_id, "devices": ["H100"]}
        )
        for number, (value, beside) in enumerate(zip(values, others or [()] * len(values), strict=True), 1)
    ]
    metrics, spread = combine([each.metrics for each in rounds])
    trained = case("bert", **config)
    made: dict[str, object] = {"metrics": metrics, "spread": spread, "rounds": [Verdict.PASS] * len(rounds)}
    made |= {"attempts": [1] * len(rounds), "key": key_figure(trained, rounds, metrics)}
    record = RunRecord(
        run_id=run_id,
        verdict=Verdict.PASS,
        exit_code=0,
        started_ms=0,
        finished_ms=1,
        command=[],
        runtime="process",
        vendor="cpu",
        code_digest="1" * 64,
        git_revision=None,
        versions={},
        hosts=[],
        cases=[trained.model_copy(update=made)],
    )
    return LoadedRun(folder=Path(run_id), record=record, rounds={"PAIRS": rounds})


def on_disk(root: Path, run: LoadedRun) -> Path:
    folder = root / run.record.run_id
    for record in run.rounds["PAIRS"]:
        (folder / "PAIRS" / f"round{record.round}").mkdir(parents=True)
        write_record(folder / "PAIRS" / f"round{record.round}" / "round.json", record)
    write_record(folder / "run.json", run.record)
    return folder
