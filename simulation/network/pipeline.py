"""Lets the stages of a pipeline work through their passes: which rows, in which order, and what they send one another.

A workload holds the rows of one stage, once for each micro-batch; every stage has the same. The order of passes is that
of `analytical --schedule`. A stage sends to the next without waiting, and waits for what it receives.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from common.errors import input_problem
from simulation.analytical.schedules import Pass, check, order
from simulation.flows.pair_flows import PAIR
from simulation.flows.train import RING, FlowSchedule, FlowTrain
from simulation.network.job import SENDS, TRANSFER, WAITS, JobPhase

NO_ROW = -1


class Stages(NamedTuple):
    """A pipeline: its schedule, stages, micro-batches, and chunks of a stage (1 unless interleaved)."""

    schedule: str
    number: int
    micro_batches: int
    chunks: int


class RowPhases(NamedTuple):
    """The phases of a row: forward, and back (input gradient, weight gradient)."""

    forward: JobPhase
    back: tuple[JobPhase, JobPhase]


class MicroBatches(NamedTuple):
    """Where a file's rows for micro-batches begin, how many each has; rows before and after belong to none."""

    begin: int
    length: int


def micro_batches_of(rows: Sequence[object], count: int, place: str) -> MicroBatches:
    """The longest run of rows that is `count` equal parts one after another.

    Raises:
        InputProblems: there is none.
    """
    import numpy as np  # an iteration without stages needs none

    numbers: dict[object, int] = {}
    kinds = np.array([numbers.setdefault(row, len(numbers)) for row in rows])
    if count == 1:
        return MicroBatches(0, len(rows))
    for length in range(len(rows) // count, 0, -1):
        differs = np.flatnonzero(kinds[:-length] != kinds[length:])
        edges = np.concatenate([[-1], differs, [len(rows) - length]])
        runs = np.flatnonzero(np.diff(edges) > (count - 1) * length)
        if len(runs):
            return MicroBatches(int(edges[runs[0]]) + 1, length)
    raise input_problem(place, f"ga: {count}", f"the rows are not {count} equal micro-batches, one after another")


def check_stages(stages: Stages, sent_bytes: int, batches: MicroBatches, place: str) -> None:
    """Say what does not fit.

    Raises:
        InputProblems: nothing is sent between stages, or chunks do not divide the rows or the micro-batches.
    """
    if not sent_bytes:
        raise input_problem(place, "pp_comm: 0", "must be the bytes of a transfer, above 0 with pp above 1")
    check(stages.schedule, stages.number, stages.micro_batches, stages.chunks)
    if stages.chunks > batches.length:
        raise input_problem("--vpp", stages.chunks, f"must be at most the {batches.length} rows of a micro-batch")


class StagePrograms:
    """Makes the phases of each stage; `transfer(source, target)` numbers a new transfer from one stage to another."""

    def __init__(
        self, stages: Stages, rows: Sequence[RowPhases], batches: MicroBatches, transfer: Callable[[int, int], int]
    ) -> None:
        self.stages, self.rows, self.batches, self._transfer = stages, rows, batches, transfer
        self._numbers: dict[tuple[bool, int, int], int] = {}

    def program(self, stage: int) -> list[JobPhase]:
        """The steps of the ranks of a stage, in order."""
        begin, length = self.batches
        end = begin + length * self.stages.micro_batches
        before, after = self.rows[:begin], self.rows[end:]
        phases = [row.forward for row in before]
        shape = self.stages
        for each in order(shape.schedule, shape.number, stage, shape.micro_batches, shape.chunks):
            phases += self._pass(each, stage)
        phases += [row.forward for row in after]
        for row in (*reversed(after), *reversed(before)):
            phases += row.back
        return phases

    def _pass(self, one: Pass, stage: int) -> list[JobPhase]:
        place = one.chunk * self.stages.number + stage  # among all chunks of all stages
        step = 1 if one.forward else -1
        phases = []
        if 0 <= place - step < self.stages.number * self.stages.chunks:
            phases.append(self._moved(one, place - step, WAITS))
        rows = self._rows(one)
        phases += (
            [row.forward for row in rows] if one.forward else [each for row in reversed(rows) for each in row.back]
        )
        if 0 <= place + step < self.stages.number * self.stages.chunks:
            phases.append(self._moved(one, place, SENDS))
        return phases

    def _moved(self, one: Pass, sender: int, mode: int) -> JobPhase:
        """The transfer of a pass's result from chunk number `sender` on, as its sender or receiver sees it."""
        key = (one.forward, one.micro_batch, sender)
        if key not in self._numbers:
            receiver = sender + (1 if one.forward else -1)
            self._numbers[key] = self._transfer(sender % self.stages.number, receiver % self.stages.number)
        return JobPhase(NO_ROW, TRANSFER, 0, self._numbers[key], mode)

    def _rows(self, one: Pass) -> Sequence[RowPhases]:
        begin, length = self.batches
        first = begin + length * one.micro_batch
        cut = [first + length * chunk // self.stages.chunks for chunk in (one.chunk, one.chunk + 1)]
        return self.rows[cut[0] : cut[1]]


def transfer_schedule(source: int, target: int, size_bytes: int) -> FlowSchedule:
    """One flow from a rank of a stage to its like in another."""
    train = FlowTrain(source, 0, range(1), target, size_bytes, 0, 1, PAIR)
    return FlowSchedule(RING, 0, 1, size_bytes, (source,), lambda _rank: [train])
