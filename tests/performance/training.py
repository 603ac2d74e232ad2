"""What the trainer adds to a training step, against the barest loop of the same model beside it.

The ranks run both in turn, TURN steps each, so that whatever else happens on the machine hits both; a turn begins at a
barrier. A pair is `log_freq` steps of each, one of the trainer's being a logged one, and takes as long as its slowest
rank. Trainer: the loop of a whole run with its loader, schedule, clock and log; evaluation and comparison of the ranks
are left out. Bare loop:
index the data, zero_grad, forward, backward, clip, step, by the same optimizer, in torch's DDP where there are several
ranks (bare_loop.py). Its steps have the same collectives, which is checked; a logged one of the trainer has one more.
Both are built anew BUILDS times: where a model lies in memory makes a percent or two. Each building gives the
median over its pairs of trainer time / bare time; the result is the median of these, with the interval that holds the
true median with 95 % (order statistics: Binomial(BUILDS, 1/2)).

A step of two ranks waits for the other's thread many times and so scatters by a fifth: these need many pairs. What the
method finds where there is nothing to find is measured, too: a bare loop against another one.
"""

import gc
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.performance.bare_loop import BareLoop
from tests.performance.ranks import SMOKE_OPTION, measured_by_ranks
from tests.performance.rows import Row

if TYPE_CHECKING:  # torch is imported by the ranks alone
    from training.benchmarks.driver.training.benchmark import TrainingBenchmark
    from training.benchmarks.driver.training.settings.settings import TrainingConfig
    from training.benchmarks.driver.training.trainer import Trainer
    from training.benchmarks.driver.workload.process_group import ProcessGroup

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained; `pairs` are those after each building, by the number of ranks."""

    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    log_freq: int = 10
    pairs: dict[int, int]


# The shipped cases, whose steps are as short as steps get, logged more often than they are shipped; and one whose steps
# are as long as a small GPU step.
CASES = {
    "BERT, 2 layers of 64": Case(model="bert", pairs={1: 4, 2: 12}),
    "LLaMA, 2 layers of 64": Case(model="llama", pairs={1: 4, 2: 12}),
    "LLaMA, 4 layers of 256": Case(
        model="llama",
        settings={"num_layers": 4, "hidden_size": 256, "ffn_hidden_size": 512, "train_batch_size": 8},
        log_freq=5,
        pairs={1: 2, 2: 4},
    ),
}
CONTROL = "BERT, 2 layers of 64"
CHECK, CHECKED, CHECK_STEPS = "check", "LLaMA, 4 layers of 256", 2
DIGESTS, DIGEST_STEPS, DIGEST_GOAL = "digests", 10, 1.05
BUILDS, TURN = 32, 5
GOAL = 1.02
CONFIDENCE = 0.95
_MARK = "training-performance "


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each case, of one rank and of two under DDP; with `smoke` of two alone."""
    return [row for ranks in ((2,) if smoke else (1, 2)) for row in _measure(ranks, smoke=smoke)]


def _measure(ranks: int, *, smoke: bool) -> list[Row]:
    found: dict[str, dict[str, float]] = measured_by_ranks(
        "tests.performance.training", _MARK, ranks=ranks, smoke=smoke, timeout_s=1800
    )
    place = "1 rank" if ranks == 1 else f"{ranks} ranks, DDP over gloo"
    control, check, digests = found.pop("control"), found.pop(CHECK), found.pop(DIGESTS)
    rows = [
        Row(
            what=f"trainer: one step of {name}, {place}, a core each",
            measured=f"{times['first_ms']:.2f} ms",
            baseline=f"{times['second_ms']:.2f} ms in a bare loop",
            ratio=times["ratio"],
            goal=f"median within 2 % of the bare loop (found {_interval(times)})",
            met=times["ratio"] < GOAL,
        )
        for name, times in found.items()
    ]
    return [
        *rows,
        Row(
            what=f"comparison of the ranks at an evaluation, {CHECKED}, {place}",
            measured=f"{check['first_ms']:.2f} ms",
            baseline=f"{check['second_ms']:.2f} ms, a training step",
            ratio=check["ratio"],
            goal=f"at most {CHECK_STEPS} steps",
            met=check["ratio"] <= CHECK_STEPS,
        ),
        Row(
            what=f"{DIGEST_STEPS} steps with compare_interval_steps {DIGEST_STEPS}, CPU time, {CHECKED}, {place}",
            measured=f"{digests['first_ms']:.1f} ms",
            baseline=f"{digests['second_ms']:.1f} ms without",
            ratio=digests["ratio"],
            goal="at most 5 % more",
            met=digests["ratio"] <= DIGEST_GOAL,
        ),
        Row(
            what=f"a bare loop of {CONTROL} against another, {place}",
            measured=f"{control['first_ms']:.2f} ms",
            baseline=f"{control['second_ms']:.2f} ms",
            ratio=control["ratio"],
            goal=f"none: what the method finds where nothing is (found {_interval(control)})",
            met=True,
        ),
    ]


def _interval(found: dict[str, float]) -> str:
    return f"{found['ratio']:.4f}, 95 % interval {found['low']:.3f} to {found['high']:.3f}"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics, equally far from both ends, that holds the median with CONFIDENCE."""
    ordered, count = sorted(values), len(values)
    below, rank = 0.0, 0
    while below + math.comb(count, rank) / 2**count <= (1 - CONFIDENCE) / 2:
        below += math.comb(count, rank) / 2**count
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def _trainer(benchmark: "TrainingBenchmark[Any]", config: "TrainingConfig", group: "ProcessGroup") -> "Trainer":
    import io

    from protocol.perflog import PerfLogger
    from training.benchmarks.driver.training.benchmark import prepare
    from training.benchmarks.driver.training.model.kernels import Libraries, choose
    from training.benchmarks.driver.training.trainer import Trainer
    from training.benchmarks.driver.workload.run_context import WorkloadContext

    run = WorkloadContext(config=config, logger=PerfLogger(0, io.StringIO()), group=group, data_dir=None)
    kernels = choose(config, benchmark.attentions, Libraries(group.device))
    return Trainer(benchmark, run, prepare(benchmark, config, None, kernels))


def _load(case: Case, ranks: int) -> "tuple[TrainingBenchmark[Any], TrainingConfig]":
    from protocol.case_config import load_case_config
    from training.benchmarks.bert.pytorch.config import Config as BertConfig
    from training.benchmarks.bert.pytorch.run_pretraining import BertBenchmark
    from training.benchmarks.llama.pytorch.config import Config as LlamaConfig
    from training.benchmarks.llama.pytorch.run_pretraining import LlamaBenchmark

    path = ROOT / "vendors" / "cpu" / f"{case.model}-pytorch" / "config" / "config_CPUx1x2.py"
    limits = {
        # A run is evaluated after its last step, which none comes to here.
        "max_steps": (case.pairs[ranks] + 2) * case.log_freq + 1,
        "eval_interval_samples": None,
        "eval_start_samples": 0,
        "compare_interval_steps": None,  # has a row of its own
        "eval_samples": 8,
        "train_samples": 4096,
        "log_freq": case.log_freq,
        **case.settings,
    }
    if case.model == "bert":
        return BertBenchmark(), load_case_config(BertConfig, path, {"target_mlm_accuracy": None, **limits})
    return LlamaBenchmark(), load_case_config(LlamaConfig, path, {"target_loss": None, **limits})


def _seconds(steps: Iterator[object], count: int) -> float:
    """Seconds that the next `count` steps take on this rank."""
    import torch.distributed as dist

    dist.barrier()
    begin = time.perf_counter()
    for _ in itertools.islice(steps, count):
        pass
    return time.perf_counter() - begin


def _pair(loops: Sequence[Iterator[object]], steps: int, number: int) -> list[float]:
    """Seconds of one step of each of the two loops on this rank; who begins a turn changes from turn to turn."""
    seconds = [0.0, 0.0]
    for turn in range(number, number + steps // TURN):
        for which in (0, 1) if turn % 2 else (1, 0):
            seconds[which] += _seconds(loops[which], TURN)
    return [total / steps for total in seconds]


def _check_collectives(loops: Sequence[Iterator[object]], case: Case, logged: int) -> None:
    """Count the collectives that the next `case.log_freq` steps of the two loops begin.

    Raises:
        RuntimeError: the first loop has another number than the second and `logged` more.
    """
    import torch.distributed as dist

    group: Any = dist.distributed_c10d._get_default_group()  # torch types not all of it
    found = []
    for loop in loops:
        before = group._get_sequence_number_for_group()
        for _ in itertools.islice(loop, case.log_freq):
            pass
        found.append(group._get_sequence_number_for_group() - before)
    if found[0] != found[1] + logged:
        raise RuntimeError(
            f"{case.log_freq} steps of the trainer have {found[0]} collectives, allowed: the bare loop's {found[1]}"
            f" and {logged} more"
        )


def _compare(case: Case, group: "ProcessGroup", builds: int, *, with_trainer: bool) -> dict[str, float]:
    """The trainer against a bare loop, or else one bare loop against another."""
    import torch
    import torch.distributed as dist

    ranks = group.placement.world_size
    benchmark, config = _load(case, ranks)
    built = []
    for _ in range(builds):
        first = _trainer(benchmark, config, group) if with_trainer else BareLoop(benchmark, config, group)
        loops = (first.steps(), BareLoop(benchmark, config, group).steps())
        gc.collect()  # what was built before
        _pair(loops, case.log_freq, 0)
        _check_collectives(loops, case, 1 if with_trainer and ranks > 1 else 0)
        built.append([_pair(loops, case.log_freq, number) for number in range(case.pairs[ranks])])
    times = torch.tensor(built, dtype=torch.float64)  # (builds, pairs, 2)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    ratios = (times[..., 0] / times[..., 1]).quantile(0.5, dim=1).tolist()
    low, high = median_interval(ratios)
    first_ms, second_ms = (times.flatten(0, 1).quantile(0.5, dim=0) * 1e3).tolist()
    return {
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "first_ms": first_ms,
        "second_ms": second_ms,
    }


def _check(group: "ProcessGroup", builds: int) -> dict[str, float]:
    """The comparison of the ranks against a training step beside it; the shared batch is as large as a micro-batch."""
    import torch.distributed as dist

    case = CASES[CHECKED]
    benchmark, config = _load(case, group.placement.world_size)
    trainer = _trainer(benchmark, config.model_copy(update={"eval_batch_size": config.train_batch_size}), group)
    batches = trainer.batches()
    times: tuple[list[float], list[float]] = ([], [])
    actions: tuple[Callable[[], object], ...] = (trainer.compare, lambda: trainer.train_step(batches))
    for _ in range(builds + 1):
        for seconds, action in zip(times, actions, strict=True):
            dist.barrier()
            begin = time.perf_counter()
            action()
            dist.barrier()
            seconds.append(time.perf_counter() - begin)
    compared, step = (statistics.median(seconds[1:]) for seconds in times)
    return {"ratio": compared / step, "first_ms": compared * 1e3, "second_ms": step * 1e3}


def _digests(group: "ProcessGroup", builds: int) -> dict[str, float]:
    """The CPU time, with gloo's threads, of a rank's steps with a comparison by digests after the last and without."""
    benchmark, config = _load(CASES[CHECKED], group.placement.world_size)
    trainer = _trainer(benchmark, config, group)
    batches = trainer.batches()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(builds + 1):
        for seconds, compares in zip(times, (True, False), strict=True):
            begin = time.process_time()
            for _ in range(DIGEST_STEPS):
                trainer.train_step(batches)
            if compares:
                trainer.compare(with_loss=False)
            seconds.append(time.process_time() - begin)
    with_digests, without = (statistics.median(seconds[1:]) for seconds in times)
    return {"ratio": with_digests / without, "first_ms": with_digests * 1e3, "second_ms": without * 1e3}


def _main() -> None:
    """A rank that `measure` starts."""
    import torch

    from training.benchmarks.driver.workload.process_group import init

    torch.set_num_threads(1)
    smoke = SMOKE_OPTION in sys.argv
    with init("gloo", timeout_s=120) as group:
        found = {}
        cases = {CONTROL: CASES[CONTROL]} if smoke else CASES
        for name, case in [*cases.items(), ("control", CASES[CONTROL])]:
            effort = replace(case, pairs=dict.fromkeys(case.pairs, 1)) if smoke else case
            found[name] = _compare(effort, group, 1 if smoke else BUILDS, with_trainer=name != "control")
            if group.placement.rank == 0:
                print(f"  {group.placement.world_size} ranks, {name}: {_interval(found[name])}", file=sys.stderr)
        found[CHECK] = _check(group, 1 if smoke else BUILDS)
        found[DIGESTS] = _digests(group, 1 if smoke else BUILDS // 4)
        if group.placement.rank == 0:
            print(_MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
