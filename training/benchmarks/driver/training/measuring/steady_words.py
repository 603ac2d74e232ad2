"""Words a round's steady state, what it leaves out, and where it leans upward by that. Needs no torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from protocol.default_outcome import is_measured
from protocol.outcome import Assessment

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
