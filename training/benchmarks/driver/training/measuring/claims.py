"""Derives what a training's FINISHED claims from the lines of its log and its settings. Needs no torch.

Every number lies between two bounds that the lines give, whose times bracket the moments at which a rank reads its own
clock: no run that measures rightly is outside, however slow its host.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from protocol.claims import CLOCK_SECONDS, CLOCK_TOLERANCE, LoggedRun, LoggedStep, outside
from protocol.perflog import Event
from training.benchmarks.driver.training.measuring.rates import flops_without_attention, peak_of
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from vendors.datasheets import datasheet

_INFINITY = float("inf")
_TERA = 1e12
_KEPT_BYTES = 12  # of a parameter between two steps: itself and two moments, each float32
_ROUNDING = 1e-6
_RAW, _NO_EVAL, _PURE = "raw_train_time", "train_no_eval_time", "pure_training_computing_time"
_BY_LINES = "the times of its log's lines"


class TrainingClaims:
    """FINISHED of a training on `log.world_size` ranks against its log. `unit` as in TrainingOutcome."""

    def __init__(self, config: TrainingConfig, log: LoggedRun, unit: str) -> None:
        self._config, self._log, self._unit = config, log, unit
        self._finished: Mapping[str, Any] = log.value(Event.FINISHED)
        self._evaluation = log.value(Event.EVALUATE)
        of_a_sample = config.tensor_parallelism()[0] * config.pipeline_parallelism()[0] * config.context_parallelism()
        dp_size = log.world_size // of_a_sample
        self._batch = config.train_batch_size * config.gradient_accumulation_steps * dp_size
        self._last = log.steps[-1].number if log.steps else 0
        self._resumed = _count(log.value(Event.TRAIN_START).get("resumed_after_step"))
        self._samples = (self._last - self._resumed) * self._batch

    def contradictions(self) -> Iterator[str]:
        """A sentence with both numbers for each claim that its log does not bear out.

        Raises:
            KeyError, TypeError, ValueError: the log has values that no training writes.
        """
        yield from self._steps()
        yield from self._convergence()
        yield from self._seconds()
        yield from self._steady()
        yield from self._percentiles()
        yield from self._rates()

    def _steps(self) -> Iterator[str]:
        config, finished = self._config, self._finished
        numbers = [step.number for step in self._log.steps]
        for name, per_step in (("global_steps", 1), ("num_trained_samples", self._batch)):
            count = self._last * per_step
            yield from outside(name, finished.get(name), count, count, "its last STEP_END")
        if any(later <= sooner for sooner, later in itertools.pairwise(numbers)):
            yield "the steps of its STEP_END do not rise"
        if self._resumed and not config.resume:
            yield f"it resumed after step {self._resumed}, resume is off"
        if (first := self._first_missing(numbers)) is not None:
            yield f"log_freq = {config.log_freq} asks for a STEP_END of step {first}, which its log has not"
        yield from self._ends(_count(self._log.value(Event.TRAIN_START).get("total_steps")))

    def _first_missing(self, numbers: Sequence[int]) -> int | None:
        """The first step that the settings want in the log and that is not there; a host may name any last step."""
        frequency = self._config.log_freq
        due = 1 if not self._resumed else self._resumed // frequency * frequency + frequency
        for number in numbers:
            if number > due:
                return due
            if number == due:
                due = due // frequency * frequency + frequency
        return due if due <= self._last else None

    def _ends(self, total: int) -> Iterator[str]:
        """Whether the run has the steps that its settings ask for, unless it reached its targets."""
        config = self._config
        by_samples = None if config.max_samples is None else config.max_samples // self._batch
        most = min((limit for limit in (config.max_steps, by_samples) if limit is not None), default=total)
        if total > most or (total < most and config.max_epochs is None):
            yield f"total_steps is {total} by TRAIN_START, {most} by its settings"
        if self._last != total and not (self._last < total and self._is_reached()):
            yield f"it ended after step {self._last} of {total}, and not because it had reached its targets"

    def _is_reached(self) -> bool:
        """Whether its last EVALUATE, after its last step, meets all targets, of which there are some."""
        targets = self._config.targets()
        numbers = {name: float(value) for name, value in self._evaluation.items() if isinstance(value, int | float)}
        is_there = all(target.metric in numbers for target in targets)
        is_last = self._evaluation.get("global_steps") == self._last
        return bool(targets) and is_there and is_last and all(target.met(numbers) for target in targets)

    def _convergence(self) -> Iterator[str]:
        claimed, targets = self._finished.get("converged"), self._config.targets()
        found = self._is_reached() if targets else None
        if claimed is not found:
            yield f"converged is {claimed} by FINISHED, {found} by its last EVALUATE and the targets of its settings"
        said, wanted = self._finished.get("targets"), [str(target) for target in targets]
        if said is not None and said != wanted:
            yield f"targets are {said!r:.80} by FINISHED, {wanted!r} by its settings"
        for name, value in self._finished.items():
            if not name.startswith("final_") or value is None:
                continue
            same = f"eval_{name.removeprefix('final_')}"
            known = [self._evaluation[same]] if same in self._evaluation else [*self._evaluation.values()]
            if value not in known:
                shown = f"{known[0]!r:.40}" if len(known) == 1 else "not there"
                yield f"{name} is {value!r:.40} by FINISHED, {shown} in its last EVALUATE"

    def _seconds(self) -> Iterator[str]:
        log, finished = self._log, self._finished
        trained = log.seconds(Event.TRAIN_START, Event.TRAIN_END)
        within = log.seconds(Event.INIT_END, Event.FINISHED)
        for name in (_RAW, "train_time"):
            yield from outside(name, finished.get(name), _low(trained), _high(within), _BY_LINES)
        for name, end in (("init_time", Event.INIT_END), ("e2e_time", Event.TRAIN_END)):
            low = _low(log.seconds(Event.SUBMIT_INFO, end))
            yield from outside(name, finished.get(name), low, _INFINITY, _BY_LINES)
        low = _low(sum(seconds for _, seconds in self._undisturbed()))
        yield from outside(_NO_EVAL, finished.get(_NO_EVAL), low, _high(finished[_RAW]), _BY_LINES)
        last = log.value(Event.STEP_END)
        rest = (log.times_ms[Event.FINISHED] - log.steps[-1].begin_ms) / 1000 if log.steps else 0.0
        for name, running in ((_NO_EVAL, "no_eval_time"), (_PURE, "pure_compute_time")):
            if running in last:
                bounds = _low(last[running]), _high(last[running] + rest)
                yield from outside(name, finished.get(name), *bounds, "its last STEP_END")
        yield from outside(_PURE, finished.get(_PURE), 0.0, _high(finished[_NO_EVAL]), _NO_EVAL)

    def _undisturbed(self) -> Iterator[tuple[int, float]]:
        """Pieces of the log in which nothing but steps is made: the step up to which all were over, and seconds.

        A device may lag behind: what is measured up to a STEP_END belongs to any of the steps since the one before.
        """
        config, steps = self._config, self._log.steps
        interval = config.eval_interval_samples
        apart = [each for each in (config.compare_interval_steps,) if each is not None]
        apart += [] if interval is None else [-(-interval // self._batch)]
        profiled = config.profiled_steps() if config.profile is not None else ()

        def has_other(first: int, last: int, every: Sequence[int]) -> bool:
            """Whether anything else is made at one of these steps."""
            is_profiled = any(first <= step <= last for step in profiled)
            return is_profiled or any(last // each > (first - 1) // each for each in every)

        kept = [] if config.checkpoint_interval_steps is None else [config.checkpoint_interval_steps]
        before: LoggedStep | None = None
        for step in steps:
            over = self._resumed if before is None else before.number
            is_kept = has_other(over, step.number - 1, kept)
            if before is not None and not is_kept and not has_other(over + 1, step.number - 1, apart):
                yield over, (step.begin_ms - before.end_ms) / 1000
            if step is not steps[-1] and not has_other(step.number, step.number, apart):
                yield over, (step.end_ms - step.begin_ms) / 1000
            before = step

    def _steady(self) -> Iterator[str]:
        finished, name = self._finished, f"throughput({self._unit})_steady"
        rate = finished.get(name)
        if rate is None:
            return
        if finished.get("warmup_time") is None:
            yield f"{name} is {rate!r:.40} by FINISHED, which has no warm-up and so no steady state"
            return
        warmup, steady = _count(finished["warmup_steps"]), _count(finished["steady_steps"])
        yield from outside("steady_steps", steady, 1, self._last - self._resumed - warmup, "its last STEP_END")
        seconds = steady * self._batch / rate
        after = sum(each for over, each in self._undisturbed() if over >= self._resumed + warmup)
        yield from outside(
            f"steady_steps x samples / {name}", seconds, _low(after), _high(finished[_NO_EVAL]), _BY_LINES
        )
        both = _low(sum(each for _, each in self._undisturbed())), _high(finished[_NO_EVAL])
        yield from outside("warmup_time and the steady state", seconds + finished["warmup_time"], *both, _BY_LINES)
        low, high = finished.get(f"{name}_low"), finished.get(f"{name}_high")
        if low is not None and high is not None:
            yield from outside(name, rate, low, high, "its own interval")

    def _percentiles(self) -> Iterator[str]:
        """Whether a step took p50 and p99 at some order of the steady steps, whose seconds are their sum.

        At least as long as p50 are the steps from the middle one on, at most as long those up to it; so for p99. What
        is above p99 took no longer than the log's longest pieces.
        """
        finished = self._finished
        p50, p99 = finished.get("step_time_p50"), finished.get("step_time_p99")
        count = _count(finished.get("steady_steps"))
        if p50 is None or p99 is None or not count:
            return
        middle, late = (math.ceil(count * share / 100) for share in (50, 99))
        whole = count * self._batch / finished[f"throughput({self._unit})_steady"]
        least, most = whole * (1 - _ROUNDING), whole * (1 + _ROUNDING)
        low = (least - (late - middle) * p99 - self._longest(count - late)) / middle
        from_late = count - late + 1
        high = min(most - (late - middle) * p50, self._longest(from_late)) / from_late
        how = "its steady steps and their seconds"
        yield from outside("step_time_p50", p50, max(low, 0.0), most / (count - middle + 1), how)
        yield from outside("step_time_p99", p99, p50, high, how)

    def _longest(self, steps: int) -> float:
        """The most seconds that so many steps may have taken together: a device may lag behind by a logged step."""
        ends = [self._log.times_ms[Event.TRAIN_START], *(step.end_ms for step in self._log.steps)]
        spans = sorted((end - ends[max(place - 2, 0)] for place, end in enumerate(ends)), reverse=True)
        return _high(sum(spans[:steps]) / 1000) if steps else 0.0

    def _rates(self) -> Iterator[str]:
        finished = self._finished
        for name, value in self._formulas().items():
            low, high = (value * (1 - _ROUNDING), value * (1 + _ROUNDING))
            yield from outside(name, finished.get(name), low, high, "its own steps and seconds")
        for name, most in (
            ("tokens_per_sample", self._config.tokens_per_sample()),
            ("flops_per_sample", self._config.flops_per_sample()),
        ):
            yield from outside(name, finished.get(name), 0, most * (1 + _ROUNDING), "its settings")
        device = self._log.value(Event.SUBMIT_INFO).get("device_name")
        device = device if isinstance(device, str) else None
        yield from self._sizes(device)
        peak = peak_of(self._config, device)
        if peak is not None:
            yield from outside("peak_tflops", finished.get("peak_tflops"), peak, peak, f"its settings for {device}")

    def _sizes(self, device: str | None) -> Iterator[str]:
        """The model's size, and memory: not less than this part of the weights and their moments, not more than the
        device has, where it is known.
        """
        config, log, parameters = self._config, self._log, self._finished.get("parameters")
        counted = config.parameters()
        if counted is not None:
            yield from outside("parameters", parameters, counted, counted, "its settings")
        count = parameters if counted is None else counted
        if count is None or self._last <= self._resumed:
            return
        shards = log.world_size
        if config.layout != "auto":
            copy = config.ranks_of_a_copy(world_size=log.world_size, per_node=log.nproc)
            shards = copy * config.tensor_parallelism()[0] * config.pipeline_parallelism()[0]
        sheet = None if device is None else datasheet(device)
        most = _INFINITY if sheet is None else sheet.memory_bytes
        how = f"its {count} parameters on {shards} ranks" + ("" if sheet is None else f" and the memory of {device}")
        yield from outside(
            "peak_memory_bytes", self._finished.get("peak_memory_bytes"), _KEPT_BYTES * count / shards, most, how
        )

    def _formulas(self) -> dict[str, float]:
        """The value of each rate by its definition, from the steps of the log and the seconds that were checked, in
        samples/s, tokens/s and shares of 1.
        """
        finished, world = self._finished, self._log.world_size
        raw, no_eval, pure = (self._samples / finished[name] for name in (_RAW, _NO_EVAL, _PURE))
        throughput = f"throughput({self._unit})"
        found = {
            f"{throughput}_raw": raw,
            f"{throughput}_no_eval": no_eval,
            f"{throughput}_pure_compute": pure,
            "training_sequences_per_second": raw,
            "tokens_per_second_per_device": no_eval * finished["tokens_per_sample"] / world,
        }
        steady = finished.get(f"{throughput}_steady")
        if steady is not None:
            found["tokens_per_second_per_device_steady"] = steady * finished["tokens_per_sample"] / world
        peak = finished.get("peak_tflops")
        if peak is not None:
            devices = world * peak * _TERA / (no_eval if steady is None else steady)
            for name, flops in (("mfu", "flops_per_sample"), ("mfu_6n", "flops_per_sample_6n")):
                found[name] = finished[flops] / devices
        parameters, tokens = finished.get("parameters"), finished["tokens_per_sample"]
        if parameters is not None:
            found["flops_per_sample_6n"] = flops_without_attention(self._config, parameters, tokens)
        return found


def _count(value: object) -> int:
    """A number of steps that a host wrote, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _low(seconds: float) -> float:
    """The least seconds of a clock that these of another one allow."""
    return max(seconds * (1 - CLOCK_TOLERANCE) - CLOCK_SECONDS, 0.0)


def _high(seconds: float) -> float:
    """The most seconds of a clock that these of another one allow."""
    return seconds * (1 + CLOCK_TOLERANCE) + CLOCK_SECONDS
