"""Runs the tests on every device of a run, on all ranks at once: figures, percent of the datasheet, bad devices."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from protocol.perflog import Event
from training.benchmarks.base.pytorch.config import DISK_TESTS, Config
from training.benchmarks.base.pytorch.disks import NotHereError
from training.benchmarks.base.pytorch.figures import DeviceFigure, device_of, measure
from training.benchmarks.base.pytorch.twins import kind_of
from training.benchmarks.base.pytorch.verdict import bad_ranks, promised, summary
from training.benchmarks.driver.workload.accelerator import device_name, is_accelerator
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.run_context import WorkloadContext, open_run
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.datasheets import Datasheet, datasheet

FEWEST = 3
"""Devices of one kind among which most can agree against one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OddOnes:
    """`odd`: by rank what differs from most of its kind, in words. `split`: ranks of a kind in which no more than half
    agree, each kind a list. `alone`: how many ranks have too few of their kind to be compared.
    """

    odd: Mapping[int, str] = field(default_factory=dict)
    split: Sequence[Sequence[int]] = ()
    alone: int = 0


def odd_ones(kinds: Sequence[int], digests: Sequence[Sequence[int]], names: Sequence[str]) -> OddOnes:
    """Compare the digests of all ranks, each a value for each of `names`, among those of the same kind."""
    members: dict[int, list[int]] = defaultdict(list)
    for rank, kind in enumerate(kinds):
        members[kind].append(rank)
    odd: dict[int, str] = {}
    split: list[list[int]] = []
    alone = 0
    for ranks in members.values():
        (usual, count), *_ = Counter(tuple(digests[rank]) for rank in ranks).most_common()
        if count == len(ranks):
            alone += len(ranks) if len(ranks) < 2 else 0
        elif len(ranks) < FEWEST or 2 * count <= len(ranks):
            split.append(ranks)
        else:
            for rank in ranks:
                differs = [name for name, one, most in zip(names, digests[rank], usual, strict=True) if one != most]
                if differs:
                    odd[rank] = f"other bits than {count} of {len(ranks)} of its kind in {', '.join(differs)}"
    return OddOnes(odd=odd, split=split, alone=alone)


def main() -> None:
    """Entry of every rank. Exits with code 1 if a device is bad, 2 for settings that cannot be judged here."""
    begin = time.perf_counter()
    with open_run("base", "pytorch", Config) as run:
        sheet = datasheet(device_name(run.group.device)) if is_accelerator(run.group.device) else None
        _refuse_limits_without_datasheet(run.config, sheet)
        run.logger.log(Event.INIT_END)
        results = _measure(run, sheet)
        run.logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin, **summary(results)})
    bad = [f"{each['test']}: rank {rank}: {why}" for each in results for rank, why in each["bad_ranks"].items()]
    if bad:
        raise SystemExit("base: " + ". ".join(bad))


def _refuse_limits_without_datasheet(config: Config, sheet: Datasheet | None) -> None:
    for test in config.min_percent:
        if promised(test, config, sheet) is None:
            raise UnusableSettingsError(f"min_percent: no datasheet for {test} on this device; give it in `datasheet`")


def _measure(run: WorkloadContext[Config], sheet: Datasheet | None) -> list[dict[str, Any]]:
    config, logger, group = run.config, run.logger, run.group
    total = len(config.tests)
    logger.log(Event.TRAIN_START, {"total_steps": total})
    results = []
    for step, test in enumerate(config.tests, start=1):
        place = {"step": step, "total_steps": total, "test": test}
        logger.log(Event.STEP_BEGIN, place)
        try:
            figure = measure(test, config, group, run.data_dir)
        except NotHereError as error:
            missing: dict[str, Any] = {"test": test, "not_run": str(error), "bad_ranks": {}}
            logger.log(Event.STEP_END, place | missing)
            results.append(missing)
            continue
        everyone = _of_every_rank(figure, group)
        values, correct = [each.value for each in everyone], [each.is_correct for each in everyone]
        promise = promised(test, config, sheet)
        bad = bad_ranks(test, config, values, correct, promise)
        result = {
            "test": test,
            "unit": figure.unit,
            "value": figure.value,
            "slowest": figure.slowest,
            "values_of_ranks": values,
            "datasheet": promise,
            "percent_of_datasheet": None if promise is None else 100 * figure.value / promise,
            "correct": "pass" if all(correct) else "fail",
            "bad_ranks": {str(rank): why for rank, why in bad.items()},
        }
        if figure.farthest is not None:
            result["farthest_of_ranks"] = [each.farthest for each in everyone]
        if figure.digests:
            # numpy draws what is written to disks.
            kind = kind_of(device_of(test, group), *([np.__version__] if test in DISK_TESTS else []))
            result |= _compared(figure.digests, group, kind)
        if figure.of_peers is not None:
            result["peers_of_ranks"] = group.gathered(figure.of_peers)
        if test in DISK_TESTS:
            result["all_at_once"] = sum(values)
        logger.log(Event.STEP_END, place | result | figure.details)
        results.append(result)
    logger.log(Event.TRAIN_END)
    return results


@dataclass(frozen=True, slots=True)
class _RankFigure:
    value: float
    is_correct: bool
    farthest: float


def _of_every_rank(figure: DeviceFigure, group: ProcessGroup) -> list[_RankFigure]:
    farthest = figure.value if figure.farthest is None else figure.farthest
    mine = torch.tensor([figure.value, float(figure.is_correct), farthest], dtype=torch.float64, device=group.device)
    found = [torch.zeros_like(mine) for _ in range(group.placement.world_size)]
    dist.all_gather(found, mine)
    return [_RankFigure(float(each[0]), bool(each[1]), float(each[2])) for each in found]


def _compared(digests: dict[str, int], group: ProcessGroup, kind: int) -> dict[str, Any]:
    """This rank's digests, and whose differ from those of their `kind`; see OddOnes."""
    mine = torch.tensor([kind, *digests.values()], dtype=torch.int64, device=group.device)
    found = [torch.zeros_like(mine) for _ in range(group.placement.world_size)]
    dist.all_gather(found, mine)
    everyone = [[int(value) for value in each] for each in found]
    ones = odd_ones([kind for kind, *_ in everyone], [values for _, *values in everyone], list(digests))
    return {
        "digests": {name: f"{value % (1 << 64):016x}" for name, value in digests.items()},
        "odd_ranks": {str(rank): why for rank, why in ones.odd.items()},
        "split_ranks": [list(ranks) for ranks in ones.split],
        "not_compared": ones.alone,
    }
