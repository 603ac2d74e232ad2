"""Measures one size in one round: all groups at once, their results on rank 0."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from common.bandwidth import CONVENTION, algbw_gbps, bus_factor, busbw_gbps
from protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.statistics import MICROSECONDS
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, Group, rounds
from training.benchmarks.network.pytorch.choices import ELEMENT_BYTES, REDUCING, ROOTED
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.compute import MatrixProducts
from training.benchmarks.network.pytorch.measuring.lineup import line_up
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.rotation import back_to_back, trials
from training.benchmarks.network.pytorch.measuring.sharing import Exchange
from training.benchmarks.network.pytorch.measuring.timing import Measurement, measure
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.pytorch.operations.variants import Variant, created, variants
from training.benchmarks.network.pytorch.summing import worst
from training.benchmarks.network.slow_parts.packing import Packer


class Stepper:
    """Makes the steps of a run; all ranks make each of them together."""

    def __init__(self, run: WorkloadContext[Config], output: Output, sizes: Sequence[int]) -> None:
        self._run, self._output, self._largest = run, output, max(sizes)
        self._products: MatrixProducts | None = None
        self._exchange = Exchange(run.group, run.config.timeout_s)
        self._packer = Packer()

    def step(
        self,
        place: Mapping[str, Any],
        this_round: ConcurrentGroups,
        mine: tuple[int, Team] | None,
        collective: Collective | None,
        variant: Variant | None = None,
    ) -> dict[str, Any]:
        """Measure the size of `place` in `this_round`; `mine` and `collective` are this rank's, None if it rests.

        Returns the value of STEP_END: on rank 0 with all groups' results, many packed, else with the own verdict.
        """
        config, rank = self._run.config, self._run.group.placement.rank
        self._run.logger.log(Event.STEP_BEGIN, place)
        own: dict[str, Any] | None = None
        if mine is not None and collective is not None:
            index, team = mine
            size = collective.prepare(int(place["size_bytes"]))
            chosen = variant or variants(config, team.size)[0]
            compute = self._compute(chosen, team)
            measured = measure(collective, team, config, compute)
            group = this_round.groups[index]
            own = result(config, team, size, measured, variant=chosen)
            own |= group_place(group.backwards() if chosen.is_backwards else group)
            if config.timing == "nccl-tests" and compute is None:
                own |= self._back_to_back(team, size, chosen)
            if config.tool == "all_reduce_bench" and compute is None:
                own |= self._as_the_original(collective, team, size)
        groups = self._exchange.to_first([each.ranks[0] for each in this_round.groups], own)
        if rank != 0:
            value = {**place, "correct": own["correct"] if own else "not_checked"}
        elif place["pattern"] == "all":
            value = {**place, **groups[0]}
        else:
            correct = worst([str(group["correct"]) for group in groups])
            value = self._packer.packed({**place, "groups": groups, "correct": correct})
        if rank == 0:
            self._output.step(value)
        self._run.logger.log(Event.STEP_END, value)
        return value

    def _compute(self, variant: Variant, team: Team) -> Callable[[], None] | None:
        if variant.after_compute_ms is None:
            return None
        if self._products is None:
            self._products = MatrixProducts(self._run.group.device)
        return partial(self._products.queue, self._products.count(variant.after_compute_ms, team))

    def _as_the_original(self, collective: Collective, team: Team, size: int) -> dict[str, Any]:
        """The bandwidths of ml-engineering's all_reduce_bench beside ours, in GB/s."""
        algbw = trials(collective, team, size_bytes=size, iterations=self._run.config.iterations)
        return {"original_timing": {"algbw_GBps": algbw, "busbw_GBps": algbw * bus_factor("all_reduce", team.size)}}

    def _back_to_back(self, team: Team, size: int, variant: Variant) -> dict[str, Any]:
        """The time of nccl-tests beside ours, in microseconds and GB/s."""
        config = self._run.config
        time_us = back_to_back(
            partial(created, config, team, variant),
            team,
            size_bytes=size,
            largest_bytes=self._largest,
            warmup=config.warmup_iterations,
            iterations=config.iterations,
            aggregate=config.aggregate,
        )
        seconds = time_us / MICROSECONDS
        return {
            "nccl_tests_timing": {
                "time_us": round(time_us, 3),
                "algbw_GBps": algbw_gbps(size, seconds),
                "busbw_GBps": busbw_gbps(config.collective, size, seconds, team.size),
            }
        }


class StepsOfAll:
    """Makes steps of all ranks together, of one size each; all ranks call it."""

    def __init__(self, run: WorkloadContext[Config], output: Output) -> None:
        self._run, self._output = run, output
        self._group = group_place(rounds("all", line_up(run.group))[0].groups[0])

    def step(self, place: Mapping[str, Any], measured: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The value of STEP_END at this place; ranks other than 0 log its verdict alone."""
        logger, is_first = self._run.logger, self._run.group.placement.rank == 0
        logger.log(Event.STEP_BEGIN, place)
        value = {**place, **measured(), **self._group, "pattern": "all", "repeat": 1, "round": "all"}
        self._output.step(value)
        logger.log(Event.STEP_END, value if is_first else {**place, "correct": value["correct"]})
        return value


def measured_once(config: Config, team: Team, collective: Collective, size: int, name: str = "") -> dict[str, Any]:
    """The result of one team for `size` bytes, not after compute."""
    exact = collective.prepare(size)
    return result(config, team, exact, measure(collective, team, config), name)


def result(
    config: Config, team: Team, size: int, measured: Measurement, collective: str = "", variant: Variant | None = None
) -> dict[str, Any]:
    """The result of one team for one size of `size` bytes: a part of STEP_END (docs/reference/file-formats.md).

    Times are in microseconds, bandwidths in GB/s (1e9 bytes).
    """
    name = collective or config.collective
    seconds = measured.time_us.p50 / MICROSECONDS
    wrong = measured.wrong_elements
    return {
        "collective": name,
        "size_bytes": size,
        "count": size // ELEMENT_BYTES[config.dtype],
        "dtype": config.dtype,
        "in_place": variant.in_place if variant else config.forms[0],
        "world_size": team.size,
        "iterations": config.iterations,
        "time_us": measured.time_us.rounded(),
        "stalled_iterations": measured.stalled_iterations,
        "algbw_GBps": algbw_gbps(size, seconds),
        "busbw_GBps": busbw_gbps(name, size, seconds, team.size),
        "correct": measured.verdict,
        "checked_iterations": measured.checked_iterations,
        "wrong_elements": None if wrong is None else sum(wrong),
        "wrong_ranks": None if wrong is None else [team.ranks[place] for place, count in enumerate(wrong) if count],
        "convention": CONVENTION,
        **_chosen(config, name, variant, measured),
    }


def _chosen(config: Config, collective: str, variant: Variant | None, measured: Measurement) -> dict[str, Any]:
    """The keys of a step that differ from the usual: op, root, operations timed as one, compute before it."""
    found: dict[str, Any] = {}
    if config.op != "sum" and collective in REDUCING:
        found["op"] = config.op
    if variant is not None and collective in ROOTED and (variant.root or config.root == "all"):
        found["root"] = variant.root
    if config.aggregate != 1:
        found["aggregate"] = config.aggregate
    if variant is not None and variant.after_compute_ms is not None:
        found |= {"after_compute_ms": variant.after_compute_ms, "last_rank_us": round(measured.last_rank_us, 3)}
        found["added_us"] = round(measured.added_us, 3)
    return found


def group_place(group: Group) -> dict[str, Any]:
    """Identity of a group: its label, rail (of a pair on a rail), hosts (names and node ranks) and global ranks."""
    return {
        **({} if group.rail is None else {"rail": group.rail}),
        "group": group.label,
        "hosts": [host.name for host in group.hosts],
        "node_ranks": [host.node_rank for host in group.hosts],
        "ranks": list(group.ranks),
    }
