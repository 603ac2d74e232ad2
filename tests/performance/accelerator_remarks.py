"""Reads what a row measured, and says what disagrees with datasheet, memory estimate or prediction."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from protocol.outcome import JobOutcome, MeasuredCase
from simulation.predict.iteration import predict
from simulation.predict.job_table import job_of
from simulation.predict.machine import machine_of
from tests.performance.accelerator_rows import Case, Device, Row, estimate
from training.benchmarks.catalog import benchmark
from vendors.datasheets import datasheet

KEPT = (
    "throughput(ips)_steady", "tokens_per_second_per_device_steady", "mfu", "peak_memory_bytes", "final_loss",
)  # fmt: skip
UNITS = ("_TFLOPS", "_TOPS", "_GBps", "_GB")
MOST_FIGURES = 12
LEAST_OF_DATASHEET = 0.5
MOST_OF_DATASHEET = 1.02
MEMORY_OFF = 0.15
PREDICTION_OFF = 0.3
"""Shares beyond which a figure disagrees."""


def figures(row: Row, cases: list[Case], folder: Path) -> dict[str, float]:
    """The figures of a row by name, of several cases each with the case's; none where nothing was recorded."""
    found: dict[str, float] = {}
    runs = sorted((folder / "runs").glob("run2*"))
    for case in cases if runs else ():
        prefix = f"{case.name}.{{}}" if len(cases) > 1 else "{}"
        for name, value in _metrics(runs[-1] / case.name / "round1" / "round.json").items():
            if name in KEPT or name.endswith(UNITS) or "busbw" in name:
                found[prefix.format(name)] = value
    if not row.file:
        found |= _of_commands(folder)
    return dict(list(found.items())[: MOST_FIGURES * max(1, len(cases))])


def _metrics(file: Path) -> dict[str, float]:
    try:
        metrics = json.loads(file.read_text(encoding="utf-8"))["metrics"]
    except (OSError, ValueError, KeyError):
        return {}
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _of_commands(folder: Path) -> dict[str, float]:
    """Of the monitor how many samples of devices it took and their mean power in watts; of AIOB the files it wrote."""
    samples = folder / "monitor.jsonl"
    lines = samples.read_text(encoding="utf-8").splitlines() if samples.is_file() else []
    records = [record for record in map(json.loads, lines) if record["source"] == "accelerator"]
    devices = [each for record in records for each in record.get("values", {}).get("devices", [])]
    watts = [device["power_w"] for device in devices if device.get("power_w") is not None]
    found = {"files": float(len([path for path in folder.iterdir() if path.suffix in (".txt", ".jsonl", ".db")]))}
    if devices:
        found["device_samples"] = float(len(devices))
    if watts:
        found["mean_power_W"] = sum(watts) / len(watts)
    return found


def remarks(cases: list[Case], measured: Mapping[str, float], device: Device) -> list[str]:
    """One sentence for each figure that disagrees."""
    found = []
    for case in cases:
        prefix = f"{case.name}." if len(cases) > 1 else ""
        own = {name.removeprefix(prefix): value for name, value in measured.items() if name.startswith(prefix)}
        found += [f"{case.name}: {each}" for each in (*_datasheet(own, device), *_memory(case, own, device))]
        found += [f"{case.name}: {each}" for each in _prediction(case, own, device)]
    return found


def _datasheet(measured: Mapping[str, float], device: Device) -> Iterator[str]:
    sheet = datasheet(device.name)
    if sheet is None:
        return
    promised = {
        f"matmul_{type_}_{'TOPS' if type_ == 'int8' else 'TFLOPS'}": rate for type_, rate in sheet.tflops.items()
    }
    for name, rate in (promised | {"memory_GBps": sheet.memory_GBps}).items():
        share = measured[name] / rate if name in measured else LEAST_OF_DATASHEET
        if not LEAST_OF_DATASHEET <= share <= MOST_OF_DATASHEET:
            yield f"{name} is {share:.0%} of the datasheet's {rate:g}"


def _memory(case: Case, measured: Mapping[str, float], device: Device) -> Iterator[str]:
    peak = measured.get("peak_memory_bytes")
    expected = estimate(case, device, allocated=True) if peak is not None else None
    if peak is not None and expected and abs(peak / expected - 1) > MEMORY_OFF:
        yield f"peak memory is {peak / 1e9:.2f} GB, the estimate {expected / 1e9:.2f} GB"


def _prediction(case: Case, measured: Mapping[str, float], device: Device) -> Iterator[str]:
    speed, machine = measured.get("tokens_per_second_per_device_steady"), machine_of(device.name)
    if case.settings["model"] != "llama" or speed is None or machine is None:
        return
    outcome = benchmark("llama", str(case.settings["framework"])).outcome
    assert isinstance(outcome, JobOutcome)
    sized = MeasuredCase(
        name=case.name, config=case.config.model_dump(mode="json"), nnodes=1, nproc=int(case.settings["nproc"])
    )
    row = {key: str(value) for key, value in outcome.described_job(sized, []).items()} | {"gpu": machine.gpu}
    expected = predict(job_of(row, case.name), machine).tokens_per_second_and_gpu
    if abs(speed / expected - 1) > PREDICTION_OFF:
        yield f"{speed:.0f} tokens/s a device, {expected:.0f} are predicted"
