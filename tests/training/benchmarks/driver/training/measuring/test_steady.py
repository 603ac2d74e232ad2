"""Where step times have settled, how sure their mean is, and what a run says of it."""

import math
import random
from collections.abc import Callable, Mapping
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.outcome import Assessment, MeasuredCase, MeasuredRound
from run_benchmarks.results.outcomes import joules_of
from tests.training.benchmarks.driver.training.tiny import config_of
from training.benchmarks.driver.training.measuring import log_values, report
from training.benchmarks.driver.training.measuring.log_values import TrainingProgress
from training.benchmarks.driver.training.measuring.outcome import TrainingOutcome, steady_assessment
from training.benchmarks.driver.training.measuring.rates import Times
from training.benchmarks.driver.training.measuring.steady import SteadyState, half_width, settled_after
from training.benchmarks.driver.training.settings.schedule import ScheduleError, TrainingSchedule
from training.benchmarks.driver.training.settings.settings import TrainingConfig

MEAN = 0.1


def _steps(count: int, seed: int = 1, dependence: float = 0.6) -> list[float]:
    """Step times of a steady state in which a slow step follows a slow one: an autoregressive process."""
    generator, now, found = random.Random(seed), 0.0, []
    for _ in range(count):
        now = dependence * now + generator.gauss(0, 0.002)
        found.append(MEAN + now)
    return found


@pytest.mark.parametrize(
    ("before", "least", "most"),
    [
        ([], 0, 0),
        ([4.0], 1, 1),  # torch.compile
        ([4.0, 0.1, 3.0], 3, 3),  # and again for another graph
        ([4.0, *[0.1, 0.1, 0.1, 3.0] * 2], 9, 9),  # and twice more, with steps of each graph between
        ([0.3 - 0.005 * step for step in range(40)], 35, 60),  # clocks, caches
    ],
)
def test_the_warmup_ends_where_the_step_time_has_settled(before: list[float], least: int, most: int) -> None:
    for seed in range(5):
        found = settled_after(before + _steps(200, seed, dependence=0.0))
        assert found is not None and least <= found <= most + 10, (seed, found)


def test_a_hundred_compiled_steps_give_the_rate_after_the_compilation() -> None:
    """100 steps of 64 samples: 178 samples/s on the whole, 1132 once it is compiled."""
    step = 64 / 1132
    first = 6400 / 178 - 99 * step
    steady = SteadyState.of([first, *(step * (1 + 0.01 * (-1) ** number) for number in range(99))])
    assert steady is not None
    assert 64 / steady.mean == pytest.approx(1132, rel=1e-3)
    assert (steady.warmup_steps, steady.steps) == (1, 99)
    assert steady.warmup_seconds == first


def test_a_slow_step_in_the_middle_is_no_warmup_and_counts() -> None:
    times = _steps(100, dependence=0.0)
    times[45] = 1.0
    steady = SteadyState.of(times)
    assert steady is not None and steady.warmup_steps == 0
    assert steady.mean == fmean(times)
    assert steady.p99 < 1.0 < 1.01 > max(times)


@pytest.mark.parametrize(
    "times",
    [
        [1 - 0.004 * number for number in range(100)],
        [1.0] * 60 + [0.1] * 40,  # faster only in the second half
        _steps(60) + [0.5 * time for time in _steps(60, seed=2)],  # in the middle
        [1.5 * time for time in _steps(70)] + _steps(30, seed=2),  # late
        [0.1] * 19,
    ],
)
def test_what_still_changes_or_is_too_short_has_not_settled(times: list[float]) -> None:
    assert settled_after(times) is None
    assert SteadyState.of(times) is None


def test_the_user_can_set_where_the_steady_state_begins() -> None:
    times = [1.0] * 60 + [0.1] * 40
    times[70] = math.nan  # a step that was profiled
    steady = SteadyState.of(times, 60)
    assert steady is not None
    assert (steady.warmup_steps, steady.steps) == (60, 39)
    assert steady.mean == pytest.approx(0.1)
    assert steady.warmup_seconds == 60
    assert SteadyState.of(times[:60], 60) is None, "the run ended before"
    few = SteadyState.of(times, 95)
    assert few is not None and few.half_width is None, "five steps have no interval"


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    steady = SteadyState.of([float(number) for number in range(1, 201)], 0)
    assert steady is not None and (steady.p50, steady.p99) == (100.0, 198.0)


def _coverage(interval: Callable[[list[float]], float | None], count: int) -> float:
    """How often the interval of dependent step times holds their true mean."""
    hits = 0
    for seed in range(300):
        times = _steps(count, seed)
        width = interval(times)
        assert width is not None
        hits += abs(fmean(times) - MEAN) <= width
    return hits / 300


def test_the_interval_holds_the_mean_of_dependent_steps_and_a_naive_one_does_not() -> None:
    for count in (100, 400):
        assert _coverage(half_width, count) > 0.9
        assert _coverage(lambda times: 1.96 * stdev(times) / math.sqrt(len(times)), count) < 0.75


def test_a_warmup_leaves_steps_to_measure() -> None:
    with pytest.raises(ValueError, match="warmup_steps = 20; allowed: below max_steps = 20"):
        config_of("llama", warmup_steps=20)
    config = config_of("llama", max_steps=None, max_samples=80, warmup_steps=5)
    with pytest.raises(ScheduleError, match="warmup_steps is 5, the run has 5 steps"):
        TrainingSchedule.of(config, dp_size=2, train_samples=128)


def test_without_a_steady_state_the_figures_are_of_the_whole_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_largest", lambda value, device: value)
    run: Any = SimpleNamespace(
        config=config_of("cpm", peak_tflops=1.0),
        group=SimpleNamespace(device=SimpleNamespace(type="cpu"), placement=SimpleNamespace(world_size=1)),
    )
    times = Times(raw=10.0, no_eval=8.0, pure_compute=5.0)
    progress = TrainingProgress(step=5, steps_done=5, global_batch_size=16, total_steps=5, times=times)
    found = report.finished(progress, run, "ips", {}, steady=None, parameters=1000, work=(16, 1e6))
    assert found["mfu_of"] == "whole training" and found["mfu"] is not None
    for key in ("warmup_steps", "warmup_time", "steady_steps", "step_time_p50", "throughput(ips)_steady"):
        assert found[key] is None


def _assessed(times: list[float], *, is_set: bool = False) -> tuple[SteadyState | None, Assessment]:
    """The steady state of the steps of a run, and what its FINISHED is said to show."""
    steady = SteadyState.of(times, 30 if is_set else None)
    finished = log_values._steady(steady, 16, "ips") | {
        "global_steps": len(times),
        "num_trained_samples": 16 * len(times),
    }
    return steady, steady_assessment(finished, "ips", is_set=is_set)


@pytest.mark.parametrize(("count", "is_anywhere"), [(100, False), (400, False), (100, True), (400, True)])
def test_a_steady_rate_that_a_slow_phase_makes_too_high_says_so(count: int, is_anywhere: bool) -> None:
    """A fifth of the steps at half as much again: whatever part of them is cut as a warm-up is told, with the rate of
    all steps, which no rule of ours finds.
    """
    leaning = 0
    for seed in range(60):
        times = _steps(count, seed)
        begin = random.Random(seed).randrange(count * 4 // 5) if is_anywhere else 0
        times[begin : begin + count // 5] = [1.5 * time for time in times[begin : begin + count // 5]]
        steady, said = _assessed(times)
        if steady is None or fmean(times) / steady.mean < 1.05:
            continue
        leaning += 1
        whole = 16 / fmean(times)
        (warning,) = said.warnings
        assert f"with which it is {whole:.4g}" in warning, warning
        assert "may be too high" in warning and f"{whole:.4g} with the steps before, which the" in said.sentences[0]
        ratio = float(said.sentences[1].partition(" times as long")[0].rpartition(" ")[2])
        cut = steady.warmup_steps
        assert "a phase of " in said.sentences[1] and ratio == pytest.approx(fmean(times[:cut]) / steady.mean, rel=0.01)
    assert leaning > 10


def test_a_compilation_and_a_chosen_warmup_are_told_without_a_warning() -> None:
    steady, said = _assessed([4.0, *_steps(99)])
    assert steady is not None and steady.warmup_steps == 1 and said.warnings == ()
    assert said.sentences[0].endswith("with the steps before, which the interval excludes")
    _, chosen = _assessed([0.15] * 30 + _steps(70), is_set=True)
    assert chosen.warnings == () and chosen.sentences[1].startswith("a phase of 30 steps, 30 % of all, is left out")
    few = sum(bool(_assessed(_steps(400, seed))[1].warnings) for seed in range(60))
    assert few <= 2, "of runs without a phase"


def test_tokens_per_joule_stand_beside_the_energy() -> None:
    measured = MeasuredRound(
        number=1,
        metrics={"training_sequences_per_second": 8.0, "raw_train_time": 50.0, "tokens_per_sample": 512.0},
        steps=[],
        hosts={0: "a", 1: "b"},
        joules=joules_of([_node({"rapl": 1000.0, "ipmi": 5000.0}), _node({"rapl": 600.0})]),
    )
    case = MeasuredCase(name="ONE", config={}, nnodes=2, nproc=1)
    (sentence,) = TrainingOutcome("ips", {}, TrainingConfig).assess(case, [measured]).sentences
    assert sentence == f"tokens per joule of all hosts, evaluations included: {8 * 50 * 512 / 1600:.4g} by rapl"
    assert joules_of([_node({"rapl": "1"}), _node({})]) == joules_of([]) == {}


def _node(joules: Mapping[str, object]) -> Any:
    power = {meter: {"watts": {}, "joules": found} for meter, found in joules.items()}
    return SimpleNamespace(node_rank=0, host="a", monitor={"phase": {"power": power}})


def _sentences(**metrics: Any) -> tuple[str, ...]:
    case: Any = SimpleNamespace(config={})
    measured: Any = SimpleNamespace(number=1, metrics=metrics, joules={})
    return TrainingOutcome("ips", {}, TrainingConfig).assess(case, [measured]).sentences


def test_a_run_says_when_it_was_steady() -> None:
    known = {"steady_steps": 93, "warmup_steps": 7, "throughput(ips)_steady": 1132.4}
    assert _sentences(**known) == ("steady after 7 steps: 1132 samples/s",)
    ends = {"throughput(ips)_steady_low": 1120.0, "throughput(ips)_steady_high": 1144.0}
    assert _sentences(**known, **ends) == ("steady after 7 steps: 1132 samples/s, 95 % interval 1120 to 1144",)
    (sentence,) = _sentences(**dict.fromkeys(known))
    assert sentence.startswith("the step time did not settle")
    assert _sentences(mfu=0.4) == (), "a record from before the steady state was measured"
