"""Measures a group of ranks, the victims, alone and beside another group's traffic, the aggressors'.

The aggressors run all_to_all of the largest size without a pause. The congestion figure is the victims' time beside
them / alone, of the median and of the 99th percentile.

Source: Chunduri and others, "GPCNeT: Designing a Benchmark Suite for Inducing and Measuring Contention in HPC Networks"
(2019), for victims, aggressors and the ratio.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from common.bandwidth import CONVENTION
from protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, Group, HostRanks
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.lineup import line_up, team_of
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.sharing import Exchange
from training.benchmarks.network.pytorch.measuring.stepping import group_place, measured_once
from training.benchmarks.network.pytorch.operations.exchanges import AllToAll
from training.benchmarks.network.pytorch.operations.variants import created, refuse_unsupported

ALONE, BESIDE = "alone", "beside traffic"


def roles(hosts: Sequence[HostRanks]) -> ConcurrentGroups:
    """Victims and aggressors: every other local rank, so that both use all hosts; of single ranks every other host.

    Raises:
        ValueError: a group would have fewer than 2 ranks.
    """
    if all(len(host.ranks) >= 2 for host in hosts):
        parts = [[(host, host.ranks[first::2]) for host in hosts] for first in (0, 1)]
    else:
        parts = [[(host, host.ranks) for host in hosts[first::2]] for first in (0, 1)]
    groups = tuple(
        Group(
            hosts=tuple(HostRanks(node_rank=host.node_rank, name=host.name, ranks=ranks) for host, ranks in part),
            ranks=tuple(sorted(rank for _, ranks in part for rank in ranks)),
            label=label,
        )
        for part, label in zip(parts, ("victims", "aggressors"), strict=True)
    )
    if any(len(group.ranks) < 2 for group in groups):
        raise ValueError("tool 'congestion' needs 4 ranks or more: two groups of 2")
    return ConcurrentGroups(name="victims and aggressors", groups=groups)


def traffic_of(config: Config, team: Team) -> AllToAll:
    """The operation that the aggressors run."""
    return AllToAll(team, getattr(torch, config.dtype), config.seed, in_place=False)


class Congestion:
    """The measurements of a case with the tool congestion. All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run = run
        try:
            self._round = roles(line_up(run.group))
        except ValueError as error:
            raise UnusableSettingsError(str(error)) from error
        victims = len(self._round.groups[0].ranks)
        if refusal := run.config.refusal_of_group(victims):
            raise UnusableSettingsError(refusal)
        refuse_unsupported(run.config, run.group.backend, [victims])
        world = Team.world(run.group)
        self._sizes, self.skipped = fitting_sizes(run, created(run.config, world), traffic_of(run.config, world))
        self.total_steps = 2 * len(self._sizes)
        names = [uuid.uuid4().hex]
        dist.broadcast_object_list(names, src=0)
        self._key = f"network/congestion/{names[0]}"

    def forecast(self, output: Output) -> dict[str, Any]:
        """Nothing: it takes seconds."""
        return {}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure the victims at each size alone, then beside the aggressors; yields the value of each STEP_END."""
        config, logger, rank = self._run.config, self._run.logger, self._run.group.placement.rank
        output.header(config.collective, CONVENTION)
        exchange = Exchange(self._run.group, config.timeout_s)
        victims = self._round.groups[0]
        with team_of(self._round, self._run.group) as mine:
            for step, (size, variant) in enumerate(((s, v) for s in self._sizes for v in (ALONE, BESIDE)), start=1):
                place: dict[str, Any] = {"step": step, "total_steps": self.total_steps, "collective": config.collective}
                place |= {"variant": variant}
                logger.log(Event.STEP_BEGIN, place)
                own: dict[str, Any] | None = None
                if mine is not None and mine[0] == 0:
                    own = self._victim(mine[1], size, step if variant == BESIDE else None)
                elif mine is not None and variant == BESIDE:
                    self._aggressor(mine[1], step)
                found = exchange.to_first([victims.ranks[0]], own)
                # Nobody begins the next step while the aggressors' last messages are on their way.
                Team.world(self._run.group).barrier()
                value = place | {"correct": own["correct"] if own else "not_checked"}
                if rank == 0:
                    value = {**place, **found[0], **group_place(victims), "pattern": "all", "repeat": 1, "round": "all"}
                    output.step(value)
                logger.log(Event.STEP_END, value)
                yield value

    def _victim(self, team: Team, size: int, loaded: int | None) -> dict[str, Any]:
        """The victims' result; `loaded` is the step in which aggressors run."""
        config, store = self._run.config, _store()
        if loaded is not None:
            store.get(f"{self._key}/{loaded}/began")
        found = measured_once(config, team, created(config, team), size)
        if loaded is not None and team.rank == 0:
            store.set(f"{self._key}/{loaded}/enough", b"1")
        return found

    def _aggressor(self, team: Team, step: int) -> None:
        """Send until the victims have enough."""
        store, traffic = _store(), traffic_of(self._run.config, team)
        traffic.prepare(max(self._sizes) or 1)
        traffic.refill()
        enough = torch.zeros(1, dtype=torch.int32, device=team.device)
        while not int(enough):
            traffic.run()
            if team.rank == 0:
                store.set(f"{self._key}/{step}/began", b"1")
                enough += int(store.check([f"{self._key}/{step}/enough"]))
            dist.broadcast(enough, src=team.ranks[0], group=team.handle)


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
