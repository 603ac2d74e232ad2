"""Outcome of the training benchmarks: throughputs, MFU, memory and the target. Imports no torch."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from protocol.claims import LoggedRun
from protocol.default_outcome import DefaultOutcome, is_measured
from protocol.outcome import Assessment, Better, Comparison, MeasuredCase, MeasuredRound, Metric, Reference
from training.benchmarks.driver.training.measuring.claims import TrainingClaims
from training.benchmarks.driver.training.measuring.curve_records import (
    CURVE_ENTRY,
    compare_references,
    curve_of,
    curve_reference,
)
from training.benchmarks.driver.training.settings.settings import PHASES, TrainingConfig

# A warm-up that leaves out more than this share of the steps, each this many times as long as later ones, is a phase.
LONG_WARMUP = 0.1
SLOWER = 1.05
# Compilations make so many steps slow that stand at the beginning; more are doubtful where they change the rate.
SINGLE_STEPS = 10


def steady_assessment(metrics: Mapping[str, JsonValue], unit: str, *, is_set: bool) -> Assessment:
    """The statements on FINISHED's steady state; none in records from before it was measured. `unit` as in
    TrainingOutcome; `is_set`: the user has chosen where it begins.
    """
    if "steady_steps" not in metrics:
        return Assessment()
    name = f"throughput({unit})_steady"
    keys = (name, "warmup_steps", "warmup_time", "steady_steps", "num_trained_samples", "global_steps")
    numbers = {key: float(value) for key in keys if is_measured(value := metrics.get(key))}
    if not numbers.get(name):
        said = "the step time did not settle: more steps show a steady state"
        return Assessment(sentences=(f"{said}, or warmup_steps sets where it begins",))
    interval = _interval(metrics, name)
    found = f"steady after {numbers.get('warmup_steps', 0.0):.0f} steps: {numbers[name]:.4g} samples/s"
    if interval is not None:
        found += f", 95 % interval {interval[0]:.4g} to {interval[1]:.4g}"
    if not all(numbers.get(key) for key in keys):
        return Assessment(sentences=(found,))
    warmup = _Warmup(
        steps=numbers["warmup_steps"],
        seconds=numbers["warmup_time"],
        steady_steps=numbers["steady_steps"],
        batch=numbers["num_trained_samples"] / numbers["global_steps"],
        rate=numbers[name],
    )
    is_outside = interval is not None and not interval[0] <= warmup.whole <= interval[1]
    outside = ", which the interval excludes" if is_outside else ""
    sentences = (f"{found}; {warmup.whole:.4g} with the steps before{outside}", *warmup.phase())
    if is_set or not (warmup.is_long or (is_outside and warmup.steps > SINGLE_STEPS)):
        return Assessment(sentences=sentences)
    warning = (
        f"the steady rate {warmup.rate:.4g} samples/s may be too high: it leaves out {100 * warmup.share:.0f} % of the"
        f" steps, with which it is {warmup.whole:.4g}; more steps tell a start from a phase"
    )
    return Assessment(sentences=sentences, warnings=(warning,))


def _interval(metrics: Mapping[str, JsonValue], name: str) -> tuple[float, float] | None:
    """The interval of the steady rate, in samples/s."""
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    return (low, high) if is_measured(low) and is_measured(high) else None


@dataclass(frozen=True, kw_only=True)
class _Warmup:
    """The steps before the steady state, and those in it; `batch` in samples, `rate`, the steady one, in samples/s."""

    steps: float
    seconds: float
    steady_steps: float
    batch: float
    rate: float

    @property
    def share(self) -> float:
        """Its part of all steps."""
        return self.steps / (self.steps + self.steady_steps)

    @property
    def is_long(self) -> bool:
        """Whether it is longer than a start usually is."""
        return self.share > LONG_WARMUP

    @property
    def whole(self) -> float:
        """The rate of all steps, in samples/s."""
        return (self.steps + self.steady_steps) * self.batch / (self.seconds + self._steady_seconds)

    @property
    def _steady_seconds(self) -> float:
        return self.steady_steps * self.batch / self.rate

    def phase(self) -> Iterator[str]:
        """A sentence on a warm-up that is long and slow enough to be a phase of the training; else none."""
        ratio = self.seconds / self.steps / (self._steady_seconds / self.steady_steps)
        if self.is_long and ratio > SLOWER:
            yield (
                f"a phase of {self.steps:.0f} steps, {100 * self.share:.0f} % of all, is left out of the steady rate:"
                f" its steps took {ratio:.3g} times as long as later ones on average"
            )


LAYOUT = ("train_batch_size", "gradient_accumulation_steps", "activation_checkpointing")
"""Settings that layout = "auto" decides on the hosts: FINISHED's chosen_layout."""
_OF_A_STEP = "of a profiled step of rank 0; waiting for communication is in the others, too"


class TrainingOutcome(DefaultOutcome):
    """Outcome of a training: its throughput, whether it reached its targets, and its curves.

    `unit` is what FINISHED's throughputs count (FlagPerf: sps for BERT, ips for the others: both are samples a
    second). `final` has the metrics of the last evaluation by name, each with its better direction. `settings` is the
    benchmark's Config, by which FINISHED is derived from the log.
    """

    # Settings that change neither what is computed nor how fast.
    incidental = (
        "checkpoint_dir", "compare_interval_steps", "identify_data", "init_checkpoint", "log_freq",
        "nominal_parameters", "profile", "profile_ranks", "profile_steps", "resume", "save_weights", "seed",
        "vary_seed", "warmup_steps",
    )  # fmt: skip

    def __init__(self, unit: str, final: Mapping[str, Better], settings: type[TrainingConfig]) -> None:
        seconds = (
            ("e2e_time", "from the start of rank 0 to the result"),
            ("init_time", "until the training begins"),
            ("warmup_time", "of the steps before the step time settled, compilation included"),
            ("raw_train_time", "of the training, including evaluations and checkpoints"),
            ("train_no_eval_time", "of the training without evaluations"),
            ("pure_training_computing_time", "of forward, backward and update only"),
        )
        self._unit, self._settings = unit, settings
        super().__init__(
            (
                Metric(
                    name=f"throughput({unit})_raw",
                    unit="samples/s",
                    better="higher",
                    meaning="samples of all ranks / raw_train_time",
                    is_key=True,
                    of_steps="seq/s_interval",
                ),
                _rate(f"throughput({unit})_no_eval", "samples/s", "samples of all ranks / train_no_eval_time"),
                _rate(f"throughput({unit})_pure_compute", "samples/s", "samples of all ranks / computing time"),
                _rate("training_sequences_per_second", "samples/s", "equals the raw throughput", is_reference=False),
                _rate("tokens_per_second_per_device", "tokens/s", "of one device, without evaluations"),
                _rate(f"throughput({unit})_steady", "samples/s", "of all ranks after the warm-up", is_steady=True),
                *(
                    _rate(
                        f"throughput({unit})_steady_{end}", "samples/s", "end of its 95 % interval", is_reference=False
                    )
                    for end in ("low", "high")
                ),
                _rate("tokens_per_second_per_device_steady", "tokens/s", "of one device after the warm-up"),
                Metric(name="step_time_p50", unit="s", better="lower", meaning="median of a step after the warm-up"),
                Metric(name="step_time_p99", unit="s", better="lower", meaning="99th percentile of a step after it"),
                _rate("mfu", "", "model FLOPs utilization, a share of 1, attention included"),
                _rate("mfu_6n", "", "the same of 6 FLOPs per parameter and token, without attention"),
                Metric(name="peak_memory_bytes", unit="bytes", better="lower", meaning="of the device that uses most"),
                *(
                    Metric(name=name, unit="s", better="lower", meaning=meaning, is_reference=False)
                    for name, meaning in (*seconds, *((f"phase_{name}", _OF_A_STEP) for name in PHASES))
                ),
                *(
                    Metric(name=f"final_{name}", unit="", better=better, meaning="last evaluation", is_reference=False)
                    for name, better in final.items()
                ),
            )
        )

        self._evaluated = tuple(f"eval_{name}" for name in final)

    def references(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Mapping[str, Reference]:
        """The medians of the reference metrics, and the curves of the rounds."""
        curves = [curve_of(case, each, self._evaluated) for each in rounds]
        return {**super().references(case, rounds), **curve_reference([curve for curve in curves if curve])}

    def compare(self, now: Mapping[str, Reference], then: Mapping[str, Reference], percent: float) -> Comparison:
        """Compare the numbers by `percent`, and the curves by their own rule."""
        mine, known = ({key: each[key] for key in each if key != CURVE_ENTRY} for each in (now, then))
        numbers = super().compare(mine, known, percent)
        curves = compare_references(now.get(CURVE_ENTRY), then.get(CURVE_ENTRY))
        return Comparison(
            changes=(*curves.changes, *numbers.changes),
            sentences=(*curves.sentences, *numbers.sentences),
            remarks=curves.remarks,
        )

    def contradictions(self, case: MeasuredCase, log: LoggedRun) -> Sequence[str]:
        """Claims of FINISHED that the rest of a training's log contradicts."""
        config = self._settings.model_validate_json(json.dumps(dict(case.config)))
        return [*TrainingClaims(config, log, self._unit).contradictions()]

    def described_job(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Mapping[str, JsonValue]:
        """The training in the columns of `predict --job`, with the layout that it chose.

        Raises:
            ValueError: the model is no decoder, or its key-value heads are fewer than the ranks of a sequence.
        """
        chosen = next((each.metrics.get("chosen_layout") for each in rounds), None)
        layout = {key: chosen[key] for key in LAYOUT if key in chosen} if isinstance(chosen, dict) else {}
        config = self._settings.model_validate_json(json.dumps({**case.config, **layout}))
        model = config.described_model()
        if model is None:
            raise ValueError("`predict` describes decoders alone, of which this benchmark trains none")
        ranks, recompute = case.nnodes * case.nproc, config.recompute
        tp_size, is_sequence_shared = config.tensor_parallelism()
        pp_size, chunks = config.pipeline_parallelism()
        shards = config.ranks_of_a_copy(world_size=ranks, per_node=case.nproc)
        is_replicated, scaling = config.strategy == "ddp" and ranks > 1, config.fp8_recipe()
        if config.context_parallelism() * tp_size > model["kv_heads"]:
            raise ValueError("`predict` divides key-value heads; the ranks of a sequence are more and have copies")
        return {
            **model, "name": case.name, "gpus": ranks, "gpus_per_node": case.nproc,
            "precision": f"fp8 {scaling}" if scaling else config.precision, "mbs": config.train_batch_size,
            "micro_batches": config.gradient_accumulation_steps, "tp": tp_size, "sp": int(is_sequence_shared),
            "pp": pp_size, "vpp": chunks, "cp": config.context_parallelism(), "cp_comm": "a2a",
            "ep": config.expert_parallelism(), "distributed_optimizer": 0,
            "ddp": int(is_replicated), "fsdp": 0 if is_replicated else shards,
            "recompute": f"{recompute} elementwise" if recompute == "selective" else recompute,
            "compile": int(config.compile_backend is not None),
            "attention": next((str(each.metrics.get("attention_kernel") or "") for each in rounds), ""),
        }  # fmt: skip

    def assess(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Assessment:
        """Whether targets were reached, and warnings about an implausible throughput."""
        sentences, warnings = [], []
        for each in rounds:
            prefix = f"round {each.number}: " if len(rounds) > 1 else ""
            targets = each.metrics.get("targets")
            found = [
                f"{name} {value:.4g}"
                for name, value in each.metrics.items()
                if name.startswith("final_") and is_measured(value)
            ]
            if isinstance(targets, list) and targets and each.metrics.get("converged") is True:
                reached = " and ".join(map(str, targets))
                samples = each.metrics.get("num_trained_samples")
                sentences.append(f"{prefix}reached {reached} after {samples} samples: {', '.join(found)}")
            steady = steady_assessment(each.metrics, self._unit, is_set=case.config.get("warmup_steps") is not None)
            sentences += [prefix + said for said in (*steady.sentences, *_efficiency(each))]
            warnings += [prefix + said for said in steady.warnings]
            mfu = each.metrics.get("mfu")
            if is_measured(mfu) and mfu > 1:
                warnings.append(
                    f"{prefix}mfu {mfu:.3g} is above 1: peak_tflops {each.metrics.get('peak_tflops')} is wrong"
                )
        return Assessment(sentences=tuple(sentences), warnings=tuple(warnings))


def _efficiency(measured: MeasuredRound) -> list[str]:
    """Tokens that were trained for each joule, by power meter; none where no meter or no tokens are known."""
    metrics = measured.metrics
    numbers = [metrics.get(name) for name in ("training_sequences_per_second", "raw_train_time", "tokens_per_sample")]
    if not measured.joules or not all(map(is_measured, numbers)):
        return []
    tokens = math.prod(float(number) for number in numbers if is_measured(number))
    found = ", ".join(f"{tokens / joules:.4g} by {meter}" for meter, joules in sorted(measured.joules.items()))
    return [f"tokens per joule of all hosts, evaluations included: {found}"]


def _rate(name: str, unit: str, meaning: str, *, is_reference: bool = True, is_steady: bool = False) -> Metric:
    return Metric(
        name=name, unit=unit, better="higher", meaning=meaning, is_reference=is_reference, is_steady=is_steady
    )
