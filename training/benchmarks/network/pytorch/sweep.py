"""Measures a sweep over message sizes, by all ranks at once or by the groups of a cluster pattern, round by round."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import UnusableSettingsError, WorkloadContext
from training.benchmarks.network.bandwidth import CONVENTION, algbw_gbps, busbw_gbps
from training.benchmarks.network.pytorch import collectives
from training.benchmarks.network.pytorch.collectives import Collective
from training.benchmarks.network.pytorch.config import ELEMENT_BYTES, Config
from training.benchmarks.network.pytorch.lineup import line_up, team_of
from training.benchmarks.network.pytorch.memory import refuse_too_large
from training.benchmarks.network.pytorch.output import Output
from training.benchmarks.network.pytorch.team import Team
from training.benchmarks.network.pytorch.timing import MICROSECONDS, Measurement, measure
from training.benchmarks.network.schedule import ConcurrentGroups, Group


class Sweep:
    """The measurements of a case with tool "sweep" or "all_reduce_bench". All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run, self._config = run, run.config
        hosts = line_up(run.group)
        try:
            self._rounds = run.config.rounds_of(hosts)
        except ValueError as error:
            raise UnusableSettingsError(str(error)) from error
        refusal = run.config.refusal_of(self._rounds, len(hosts))
        if refusal is None and run.config.cuda_graph and run.group.device.type != "cuda":
            refusal = f"cuda_graph = True needs backend nccl, this run has {run.group.backend}; leave it out"
        if refusal is not None:
            raise UnusableSettingsError(refusal)
        # The largest team needs the most memory, except for the rounding of chunks; the whole world bounds both.
        refuse_too_large(run, self._create(Team.world(run.group)))
        self.total_steps = run.config.repeats * len(self._rounds) * len(run.config.size_list)

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure everything; yields the value of each step's STEP_END, the same on every rank."""
        output.header(self._config.collective, CONVENTION)
        step = 0
        for repeat in range(1, self._config.repeats + 1):
            for this_round in self._rounds:
                with team_of(this_round, self._run.group) as mine:
                    collective = self._create(mine[1]) if mine else None
                    for size in self._config.size_list:
                        step += 1
                        place = {
                            "step": step,
                            "total_steps": self.total_steps,
                            "collective": self._config.collective,
                            "pattern": self._config.pattern,
                            "repeat": repeat,
                            "round": this_round.name,
                            "size_bytes": size,
                        }
                        yield self._step(place, this_round, mine, collective, output)

    def _step(
        self,
        place: dict[str, Any],
        this_round: ConcurrentGroups,
        mine: tuple[int, Team] | None,
        collective: Collective | None,
        output: Output,
    ) -> dict[str, Any]:
        """Measure one size in one round, all groups at once; returns their results on every rank."""
        config, logger = self._config, self._run.logger
        logger.log(Event.STEP_BEGIN, place)
        found: tuple[int, dict[str, Any]] | None = None
        if mine is not None and collective is not None:
            index, team = mine
            size = collective.prepare(int(place["size_bytes"]))
            measured = measure(
                collective,
                team,
                warmup=config.warmup_iterations,
                iterations=config.iterations,
                check=config.check,
                cuda_graph=config.cuda_graph,
            )
            if team.rank == 0:
                found = index, result(config, team, size, measured) | group_place(this_round.groups[index])
        gathered: list[tuple[int, dict[str, Any]] | None] = [None] * self._run.group.placement.world_size
        dist.all_gather_object(gathered, found)
        groups = [value for _, value in sorted((each for each in gathered if each), key=lambda each: each[0])]
        if config.pattern == "all":
            value = place | groups[0]
        else:
            value = place | {"groups": groups, "correct": worst([str(group["correct"]) for group in groups])}
        output.step(value)
        logger.log(
            Event.STEP_END, value if self._run.group.placement.rank == 0 else place | {"correct": value["correct"]}
        )
        return value

    def _create(self, team: Team) -> Collective:
        dtype = getattr(torch, self._config.dtype)
        name, in_place = self._config.collective, self._config.works_in_place
        return collectives.create(name, team, dtype, self._config.seed, in_place=in_place)


def result(config: Config, team: Team, size: int, measured: Measurement, collective: str = "") -> dict[str, Any]:
    """The result of one team for one size of `size` bytes: the part of STEP_END that docs/file-formats.md describes.

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
        "in_place": config.works_in_place,
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
    }


def group_place(group: Group) -> dict[str, Any]:
    """Identity of a group: its label, hosts (names and node ranks) and global ranks."""
    return {
        "group": group.label,
        "hosts": [host.name for host in group.hosts],
        "node_ranks": [host.node_rank for host in group.hosts],
        "ranks": list(group.ranks),
    }


def worst(verdicts: list[str]) -> str:
    """fail if any failed, else the first; not_checked for none."""
    return "fail" if "fail" in verdicts else next(iter(verdicts), "not_checked")
