"""Lists the collectives of a SimAI workload, row by row, in SimCCL's order."""

from collections.abc import Iterator
from typing import NamedTuple

from common.errors import MistakeList
from simulation.analytical.workload import TextWorkload
from simulation.flows.names import EVERY_KIND, OP_OF_CELL, SEND_RECEIVE
from workloads.formats.simai_text import NONE, Row, parse_row, split_row

MOST_MISTAKES = 20


class WorkloadCollective(NamedTuple):
    """One collective of a workload. `state` is 0 forward, 1 weight gradient, 2 input gradient; layers count from 0."""

    kind: str
    op: str
    size_bytes: int
    layer: int
    state: int
    rounds: int = 1

    @property
    def same(self) -> tuple[str, str, int, int]:
        """The properties that two collectives with equal flows share."""
        return self.kind, self.op, self.size_bytes, self.rounds


def collectives(workload: TextWorkload) -> Iterator[WorkloadCollective]:
    """The collectives of every row, then the transfers between pipeline stages: one set for each micro-batch.

    Raises:
        InputProblems: rows are wrong; the first 20 are named.
    """
    mistakes = MistakeList()
    known: dict[bytes, list[tuple[str, str, int, int]]] = {}
    layer = 0
    for block in workload.blocks():
        for line in block:
            _name, rest = split_row(line)
            if rest not in known:
                known[rest] = _phases(rest, workload, layer + 1, mistakes)
                if len(mistakes.mistakes) >= MOST_MISTAKES:
                    mistakes.check()
            for kind, op, size, state in known[rest]:
                yield WorkloadCollective(kind, op, size, layer, state)
            layer += 1
    workload.check_rows(layer)
    mistakes.check()
    header = workload.header
    if header.pp > 1 and header.pp_comm:
        for batch in range(header.ga):
            yield WorkloadCollective("PP", SEND_RECEIVE, header.pp_comm, layer + batch, 0, header.vpp)


def _phases(rest: bytes, workload: TextWorkload, number: int, mistakes: MistakeList) -> list[tuple[str, str, int, int]]:
    """RankGroup, operation, bytes and state of each phase that sends something."""
    place = workload.place(number)
    try:
        row: Row = parse_row(rest, lenient=workload.lenient)
    except ValueError as error:
        mistakes.add(place, None, str(error))
        return []
    found = []
    for state, phase in enumerate((row.forward, row.weight_gradient, row.input_gradient)):
        if phase.collective == NONE or not phase.size:
            continue
        op = OP_OF_CELL.get(phase.collective)
        if op is None:
            mistakes.add(place, phase.collective, f"allowed is {', '.join(OP_OF_CELL)} or {NONE}")
        elif phase.group not in EVERY_KIND:
            mistakes.add(place, phase.group, f"has no flows; allowed groups are {', '.join(EVERY_KIND)}")
        else:
            found.append((phase.group, op, phase.size, state))
    return found
