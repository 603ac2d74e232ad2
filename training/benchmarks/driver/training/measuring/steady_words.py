"""Says what a round's steady state is, what it leaves out, and where it leans upward by that. Needs no torch."""

from collections.abc import Mapping

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
    low, high = (value if is_measured(value := metrics.get(name + end)) else None for end in ("_low", "_high"))
    if not numbers.get(name):
        said = "the step time did not settle: more steps show a steady state"
        return Assessment(sentences=(f"{said}, or warmup_steps sets where it begins",))
    rate, dropped = numbers[name], numbers.get("warmup_steps", 0.0)
    found = f"steady after {dropped:.0f} steps: {rate:.4g} samples/s"
    if low is not None and high is not None:
        found += f", 95 % interval {low:.4g} to {high:.4g}"
    if not dropped or not all(numbers.get(key) for key in keys):
        return Assessment(sentences=(found,))
    steps, batch = numbers["steady_steps"], numbers["num_trained_samples"] / numbers["global_steps"]
    steady_seconds = steps * batch / rate
    whole_seconds = numbers["warmup_time"] + steady_seconds
    whole = (dropped + steps) * batch / whole_seconds
    is_outside = low is not None and high is not None and not low <= whole <= high
    outside = ", which the interval excludes" if is_outside else ""
    sentences = [f"{found}; {whole:.4g} with the steps before{outside}"]
    share = dropped / (dropped + steps)
    is_long = share > LONG_WARMUP
    ratio = (whole_seconds - steady_seconds) / dropped / (steady_seconds / steps)
    if is_long and ratio > SLOWER:
        sentences.append(
            f"a phase of {dropped:.0f} steps, {100 * share:.0f} % of all, is left out of the steady rate: its steps"
            f" took {ratio:.3g} times as long as later ones on average"
        )
    if is_set or not (is_long or (is_outside and dropped > SINGLE_STEPS)):
        return Assessment(sentences=tuple(sentences))
    warning = (
        f"the steady rate {rate:.4g} samples/s may be too high: it leaves out {100 * share:.0f} % of the steps, with"
        f" which it is {whole:.4g}; more steps tell a start from a phase"
    )
    return Assessment(sentences=tuple(sentences), warnings=(warning,))
