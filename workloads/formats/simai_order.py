"""Puts the columns of a SimAI text in the order in which they run, as rows of a workload: what `visualize` draws."""

from collections.abc import Iterator

from workloads.formats.simai import SimaiWorkload
from workloads.formats.simai_text import GROUP, NONE, Phase, WorkItem
from workloads.formats.workload import Workload
from workloads.rows.collectives import SIMULATED, capitals
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem

NO_TIME = 1
"""ns that AICB writes where nothing was measured."""
_TYPES = {capitals(name): CommType[name] for name in SIMULATED}
_GROUPS = {group: CommGroup[name] for name, group in reversed(GROUP.items())}


def in_order(text: SimaiWorkload) -> Workload:
    """One iteration: all rows forward, then the last first, each row's input gradient before its weight gradient.

    A MICRO text has its collectives in the order of its rows. A computation is a row where its time was measured.
    Source of the order: ASTRA-sim 1.0, Workload.cc, HYBRID_TRANSFORMER_FWD_IN_BCKWD.
    """
    return Workload([EPOCH_END, *_rows(text), EPOCH_END])


def _rows(text: SimaiWorkload) -> Iterator[LogItem]:
    rows = list(text)
    for row in rows:
        yield from _of_phase(row, row.forward, "forward", CommGroup.tp_group)
    for row in rows if text.header is None else reversed(rows):
        yield from _of_phase(row, row.input_gradient, "backward", CommGroup.tp_group)
        yield from _of_phase(row, row.weight_gradient, "backward", CommGroup.dp_group)


def _of_phase(row: WorkItem, phase: Phase, name: str, plain: CommGroup) -> Iterator[LogItem]:
    """plain: the group of a collective without a suffix."""
    stage = f"{name}.{row.name}"
    if phase.compute_ns > NO_TIME:
        yield LogItem(CommType.computation, stage=stage)
    if phase.collective.upper() != NONE:
        group = _GROUPS[phase.group] if phase.group else plain
        yield LogItem(_TYPES[phase.collective], group, None, phase.size, stage)
