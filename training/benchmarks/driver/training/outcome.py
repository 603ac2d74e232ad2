"""Outcome of the training benchmarks: throughputs, MFU, memory and the target. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from training.benchmarks.driver.protocol.default_outcome import DefaultOutcome, is_measured
from training.benchmarks.driver.protocol.outcome import Assessment, Better, MeasuredCase, MeasuredRound, Metric

# Settings that change neither what is computed nor how fast.
_INCIDENTAL = ("checkpoint_dir", "init_checkpoint", "log_freq", "resume", "seed", "timeout_s")


class TrainingOutcome(DefaultOutcome):
    """See Outcome.

    `unit` is what FINISHED's throughputs count (FlagPerf: sps for BERT, ips for the others: both are samples a
    second). `final` has the metrics of the last evaluation by name, each with its better direction.
    """

    def __init__(self, unit: str, final: Mapping[str, Better]) -> None:
        seconds = (
            ("e2e_time", "from the start of rank 0 to the result"),
            ("init_time", "until the training begins"),
            ("raw_train_time", "of the training, including evaluations and checkpoints"),
            ("train_no_eval_time", "of the training without evaluations"),
            ("pure_training_computing_time", "of forward, backward and update only"),
        )
        super().__init__(
            (
                Metric(
                    name=f"throughput({unit})_raw",
                    unit="samples/s",
                    better="higher",
                    meaning="samples of all ranks / raw_train_time",
                    is_key=True,
                ),
                _rate(f"throughput({unit})_no_eval", "samples/s", "samples of all ranks / train_no_eval_time"),
                _rate(f"throughput({unit})_pure_compute", "samples/s", "samples of all ranks / computing time"),
                _rate("training_sequences_per_second", "samples/s", "equals the raw throughput", is_reference=False),
                _rate("tokens_per_second_per_device", "tokens/s", "of one device, without evaluations"),
                _rate("mfu", "", "model FLOPs utilization, a share of 1"),
                Metric(name="peak_memory_bytes", unit="bytes", better="lower", meaning="of the device that uses most"),
                *(
                    Metric(name=name, unit="s", better="lower", meaning=meaning, is_reference=False)
                    for name, meaning in seconds
                ),
                *(
                    Metric(name=f"final_{name}", unit="", better=better, meaning="last evaluation", is_reference=False)
                    for name, better in final.items()
                ),
            )
        )

    def conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """The size, and all settings that change what is computed or how."""
        return {key: value for key, value in super().conditions(case).items() if key not in _INCIDENTAL}

    def assess(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Assessment:
        """See Outcome; whether targets were reached, and warnings about an implausible throughput."""
        sentences, warnings = [], []
        for each in rounds:
            prefix = f"round {each.number}: " if len(rounds) > 1 else ""
            targets = each.metrics.get("targets")
            found = [
                f"{name} {value:.4g}"
                for name, value in each.metrics.items()
                if name.startswith("final_") and isinstance(value, int | float) and is_measured(value)
            ]
            if isinstance(targets, list) and targets and each.metrics.get("converged") is True:
                reached = " and ".join(map(str, targets))
                samples = each.metrics.get("num_trained_samples")
                sentences.append(f"{prefix}reached {reached} after {samples} samples: {', '.join(found)}")
            mfu = each.metrics.get("mfu")
            if isinstance(mfu, int | float) and is_measured(mfu) and mfu > 1:
                warnings.append(
                    f"{prefix}mfu {mfu:.3g} is above 1: peak_tflops {each.metrics.get('peak_tflops')} is wrong"
                )
        return Assessment(sentences=tuple(sentences), warnings=tuple(warnings))


def _rate(name: str, unit: str, meaning: str, *, is_reference: bool = True) -> Metric:
    return Metric(name=name, unit=unit, better="higher", meaning=meaning, is_reference=is_reference)
