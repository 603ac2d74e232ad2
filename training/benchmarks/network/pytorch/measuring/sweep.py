"""Measures a sweep over message sizes, by all ranks at once or by the groups of a cluster pattern, round by round."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from common.bandwidth import CONVENTION
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, HostRanks
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.forecast import in_words, rehearse
from training.benchmarks.network.pytorch.measuring.lineup import line_up, team_of
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.stepping import Stepper
from training.benchmarks.network.pytorch.operations.variants import created, refuse_unsupported, variants

# What the name of a round ends with in which the second hosts of the pairs send to the first ones.
BACKWARDS = ", back"


class Sweep:
    """The measurements of a case with tool "sweep" or "all_reduce_bench". All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run, self._config = run, run.config
        self._rounds = refuse_unusable(run, line_up(run.group))
        # The largest team needs the most memory, except for the rounding of chunks; the whole world bounds both.
        self._sizes, self.skipped = fitting_sizes(run, created(run.config, Team.world(run.group)))
        is_pattern = run.config.pattern != "all"
        self._forecast = rehearse(self._typical(), run.group, run.config, self._sizes) if is_pattern else None
        self._variants = variants(run.config, run.group.placement.world_size)
        self.total_steps = run.config.repeats * len(self._rounds) * len(self._sizes) * len(self._variants)

    def _typical(self) -> ConcurrentGroups:
        """The first round in which rank 0 takes part."""
        return next(each for each in self._rounds if any(0 in group.ranks for group in each.groups))

    def forecast(self, output: Output) -> dict[str, Any]:
        """Say how long the pattern will take; returns the seconds for TRAIN_START, nothing for the pattern all."""
        if self._forecast is None:
            return {}
        repeats, rounds = self._config.repeats, len(self._rounds)
        seconds = self._forecast.seconds(rounds * len(self._variants), repeats, opened=rounds * repeats)
        output.note(f"{self._config.pattern}: {repeats} x {rounds} rounds, {in_words(seconds)}")
        return {"predicted_s": seconds}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure everything; yields the value of each step's STEP_END."""
        output.header(self._config.collective, CONVENTION, forms=len(self._config.forms))
        output.skipped(self.skipped)
        stepper = Stepper(self._run, output, self._sizes)
        step = 0
        for repeat in range(1, self._config.repeats + 1):
            for this_round in self._rounds:
                with team_of(this_round, self._run.group) as mine:
                    collective = created(self._config, mine[1]) if mine else None
                    for size, variant in product(self._sizes, self._variants):
                        if mine is not None and len(self._variants) > 1:
                            collective = None  # frees the buffers of the variant before
                            collective = created(self._config, mine[1], variant)
                        step += 1
                        place = {
                            "step": step,
                            "total_steps": self.total_steps,
                            "collective": self._config.collective,
                            "pattern": self._config.pattern,
                            "repeat": repeat,
                            "round": this_round.name + BACKWARDS * variant.is_backwards,
                            "size_bytes": size,
                        }
                        yield stepper.step(place, this_round, mine, collective, variant)


def refuse_unusable(run: WorkloadContext[Config], hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
    """The rounds of the case's pattern (of adaptive: the first ones) on these hosts.

    Raises:
        UnusableSettingsError: they cannot be measured here.
    """
    try:
        found = run.config.rounds_of(hosts)
    except ValueError as error:
        raise UnusableSettingsError(str(error)) from error
    refusal = run.config.refusal_of(found, len(hosts))
    if refusal is None:
        sizes = {len(group.ranks) for this_round in found for group in this_round.groups}
        refuse_unsupported(run.config, run.group.backend, sizes)
    device = run.group.device
    if refusal is None and run.config.cuda_graph and not (is_accelerator(device) and accelerators(device).has_graphs):
        refusal = f"cuda_graph = True needs a device with graphs, this run has {device}; leave it out"
    if refusal is not None:
        raise UnusableSettingsError(refusal)
    return found
