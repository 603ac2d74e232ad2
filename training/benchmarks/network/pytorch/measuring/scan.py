"""Runs the adaptive search on the ranks of the job: rank 0 decides each round, all measure it."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from common.bandwidth import CONVENTION
from protocol.finding import PartFinding
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.patterns.designs import Members
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, group_of, taking_part
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.forecast import Forecast, in_words, rehearse
from training.benchmarks.network.pytorch.measuring.lineup import line_up, team_of
from training.benchmarks.network.pytorch.measuring.memory import fitting_sizes
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.sharing import Exchange
from training.benchmarks.network.pytorch.measuring.stepping import Stepper
from training.benchmarks.network.pytorch.measuring.sweep import refuse_unusable
from training.benchmarks.network.pytorch.operations.variants import created
from training.benchmarks.network.slow_parts.adaptive import VERSION, ScanResult, expected_rounds
from training.benchmarks.network.slow_parts.comparison import PeerComparison, ScanRound
from training.benchmarks.network.slow_parts.ground import ROUNDS_TO_ASK, ground_of, searched, unclear
from training.benchmarks.network.slow_parts.search_rows import finding_of, repeats_of, search_figures, times_of


class AdaptiveScan:
    """The measurements of a case with the pattern adaptive. All ranks make it together."""

    def __init__(self, run: WorkloadContext[Config], around: Topology) -> None:
        self._run, self._config = run, run.config
        self._hosts = taking_part(line_up(run.group), run.config.ranks_per_host)
        self._names = [host.name for host in self._hosts]
        first = refuse_unusable(run, self._hosts)
        self._repeats = repeats_of(run.config.repeats)
        self._sizes, self.skipped = fitting_sizes(run, created(run.config, Team.world(run.group)))
        self._forecast = rehearse(first[0], run.group, run.config, self._sizes)
        self._ground = ground_of([host.node_rank for host in self._hosts], around)
        try:
            self._fewest, self._usual = expected_rounds(len(self._hosts), run.config.search, self._ground.layout)
        except ValueError as error:
            raise UnusableSettingsError(f"pattern 'adaptive': {error}; set 'pairs'") from error
        if self._ground.is_to_learn:
            self._fewest, self._usual = self._fewest + ROUNDS_TO_ASK, self._usual + ROUNDS_TO_ASK
        self.total_steps = self._steps_in(self._fewest)
        self.result: ScanResult | None = None

    def _steps_in(self, rounds: int) -> int:
        return rounds * self._repeats * len(self._sizes)

    def forecast(self, output: Output) -> dict[str, Any]:
        """Say how long the search takes; returns seconds, hosts in order, and its version for TRAIN_START."""
        fewest, usual = (_seconds(self._forecast, rounds, self._repeats) for rounds in (self._fewest, self._usual))
        output.note(
            f"search for bad {self._config.search} among {len(self._hosts)} hosts, if nothing is suspicious:"
            f" rounds: {self._fewest}, {in_words(fewest)}; with one bad host: {self._usual}, {in_words(usual)}"
        )
        predicted = {"predicted_s": fewest, "predicted_with_a_bad_host_s": usual}
        return predicted | {"hosts": self._names, "search_version": VERSION}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure round after round; yields the value of each step's STEP_END."""
        output.header(self._config.collective, CONVENTION)
        output.skipped(self.skipped)
        config, is_first = self._config, self._run.group.placement.rank == 0
        stepper, exchange = Stepper(self._run, output, self._sizes), Exchange(self._run.group, self._config.timeout_s)
        search = searched(self._ground, PeerComparison(config.bounds), config.search) if is_first else None
        asked: ScanRound | None = next(search) if search is not None else None
        begin, number = time.perf_counter(), 0
        while True:
            plan = exchange.from_first({"purpose": asked.purpose, "groups": asked.groups} if asked else {})
            if not plan:
                return
            number += 1
            values = []
            for value in self._round(number, plan["purpose"], [tuple(group) for group in plan["groups"]], stepper):
                values.append(value)
                yield value
            if search is None or asked is None:
                continue
            output.note(
                f"round {number} of {max(number, self._fewest)} to {max(number, self._usual)} done,"
                f" {in_words(time.perf_counter() - begin)} of"
                f" {in_words(_seconds(self._forecast, max(number, self._usual), self._repeats))}"
            )
            try:
                asked = search.send(times_of(asked.groups, values, self._repeats))
            except StopIteration as end:
                asked, (self.result, self._ground) = None, end.value

    def _round(
        self, number: int, purpose: str, groups: Sequence[Members], stepper: Stepper
    ) -> Iterator[dict[str, Any]]:
        this_round = ConcurrentGroups(
            name=f"{number}: {purpose}",
            groups=tuple(group_of([self._hosts[place] for place in members]) for members in groups),
        )
        total = self._steps_in(max(number, self._fewest))
        step = self._steps_in(number - 1)
        with team_of(this_round, self._run.group) as mine:
            collective = created(self._config, mine[1]) if mine else None
            for repeat in range(1, self._repeats + 1):
                for size in self._sizes:
                    step += 1
                    place = {
                        "step": step, "total_steps": total, "collective": self._config.collective,
                        "pattern": "adaptive", "repeat": repeat, "round": this_round.name, "size_bytes": size,
                    }  # fmt: skip
                    yield stepper.step(place, this_round, mine, collective)

    def findings(self) -> list[PartFinding]:
        """The findings of the search; of rank 0, after `steps`."""
        return [finding_of(bad, self._names, self._sizes) for bad in (self.result.bad if self.result else ())]

    def figures(self) -> dict[str, Any]:
        """Those of FINISHED; of rank 0, after `steps`."""
        return search_figures(self.result, self._ground, self._names, self._sizes) if self.result else {}

    def sentences(self) -> list[str]:
        """The findings in words, or that there are none."""
        if self.result is None:
            return []
        found = [finding.sentence for finding in self.findings()]
        if self.result.undecided:
            found.append(unclear(self._names, self.result.undecided))
        found = found or [f"no host stands out in {self.result.rounds} rounds"]
        return [*found, self._ground.unseen(self._names)]


def _seconds(forecast: Forecast, rounds: int, repeats: int) -> float:
    return forecast.seconds(rounds, repeats, opened=rounds)
