"""Writes the flows of collectives: `python -m simulation flows`."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from common.progress import StepProgress
from common.summary import JsonValue, Summary, counted
from common.units import rates_taken
from common.whole_files import target, whole_files
from simulation.common.dialect import Repair, header
from simulation.flows.choice import PROTOCOL_NAMES
from simulation.flows.collective import (
    OP_NUMBERS,
    ORIGINAL_NAMES,
    MadeFlows,
    kept_mistakes,
    make,
    make_original,
    repairs,
)
from simulation.flows.groups import RankGroup, megatron_groups, original_groups
from simulation.flows.names import ORIGINAL_OPS
from simulation.flows.request import DEFAULT_OUTPUT, FlowRequest, read_request
from simulation.flows.rows import COLUMNS_1_6, COLUMNS_2_30, RowForm, rows
from simulation.flows.tables import groups_table, rings_table, trees_table
from simulation.flows.workload import WorkloadCollective, collectives


def run(arguments: argparse.Namespace) -> Summary:
    """Write the flows of a collective, or of the rows of a workload."""
    request = read_request(arguments)
    output = target(arguments.output, str(DEFAULT_OUTPUT))
    plan = _Plan(request, distinct=arguments.distinct)
    group = request.group(request.kind) if request.kind else None
    tables: dict[Path, Iterable[bytes]] = {output: plan.blocks()}
    if group and arguments.rings:
        tables[arguments.rings] = rings_table(group)
    if group and arguments.trees:
        tables[arguments.trees] = trees_table(group)
    if arguments.groups:
        groups = original_groups(request.sizes) if request.original else megatron_groups(request.sizes)
        tables[arguments.groups] = groups_table(groups)
    with whole_files([*tables]) as files:
        for file, blocks in zip(files, tables.values(), strict=True):
            file.writelines(blocks)
    summary = plan.summary(output, group)
    taken = rates_taken({"-nv": arguments.nvlink, "-nic": arguments.nic_bandwidth})
    return summary._replace(text=summary.text + taken)


class _Counts(NamedTuple):
    """The counts of a pass over the collectives; `skipped` are those without flows, by reason."""

    collectives: int
    flows: int
    byte_count: int
    skipped: dict[str, int]


class _Plan:
    """All collectives to be written: counted first, then made one after the other."""

    def __init__(self, request: FlowRequest, *, distinct: bool) -> None:
        self.request, self.distinct = request, distinct
        self._groups: dict[str, RankGroup | None] = {}
        self.repaired: dict[str, Repair] = {}
        self.kept: dict[str, None] = {}
        self.first: MadeFlows | None = None
        self.counts = self._count()

    def _wanted(self) -> Iterator[WorkloadCollective]:
        request = self.request
        if request.workload is None:
            yield WorkloadCollective(request.kind, request.op, request.size_bytes, 0, 0)
            return
        seen = set()
        for each in collectives(request.workload):
            if self.distinct and each.same in seen:
                continue
            seen.add(each.same)
            yield each

    def _group(self, kind: str) -> RankGroup | None:
        if kind not in self._groups:
            self._groups[kind] = self.request.group(kind)
        return self._groups[kind]

    def _obstacle(self, each: WorkloadCollective) -> str:
        """Why a collective of a workload has no flows; empty if it has."""
        if self.request.original and each.op not in ORIGINAL_OPS:
            return f"{each.op}: the original has no flows of it"
        if self._group(each.kind) is None and self.request.sizes.rank_count(each.kind) > 1:
            return f"rank {self.request.rank} is in no {each.kind} group"
        if self._group(each.kind) is None:
            return f"{each.kind} groups have one rank"
        return ""

    def _count(self) -> _Counts:
        made: dict[tuple[str, str, int, int], tuple[int, int]] = {}
        skipped: dict[str, int] = {}
        number = flows = byte_count = 0
        for each in self._wanted():
            if each.same not in made:
                made[each.same] = self._look(each)
            obstacle = self._obstacle(each)
            if obstacle:
                skipped[obstacle] = skipped.get(obstacle, 0) + 1
                continue
            number += 1
            flows += made[each.same][0]
            byte_count += made[each.same][1]
        return _Counts(number, flows, byte_count, skipped)

    def _look(self, each: WorkloadCollective) -> tuple[int, int]:
        """Flows and bytes of a collective; notes what was repaired in it."""
        group = self._group(each.kind)
        if group is None or self._obstacle(each):
            return 0, 0
        made = self._make(each, group, 0)
        self.first = self.first or made
        if self.request.original:
            wish = self.request.wish
            kept = kept_mistakes(each.op, group, each.size_bytes, made, nvls=wish.algorithm == "nvls", pxn=wish.pxn)
            self.kept |= dict.fromkeys(kept)
        else:
            sizes = self.request.sizes
            for repair in repairs(each.op, group, each.size_bytes, made, tp=sizes.tp, pp=sizes.pp):
                self.repaired.setdefault(repair.name, repair)
        return made.schedule.flow_count, made.schedule.byte_count

    def _make(self, each: WorkloadCollective, group: RankGroup, first_id: int) -> MadeFlows:
        request = self.request
        if not request.original:
            return make(each.op, group, each.size_bytes, first_id, request.wish, each.rounds)
        nvls = request.wish.algorithm == "nvls"
        return make_original(
            each.op, group, each.size_bytes, first_id, nvls=nvls, pxn=request.wish.pxn, gpu_type=request.gpu_type
        )

    def blocks(self) -> Iterator[bytes]:
        """The file, in blocks of one source's flows."""
        original = self.request.original
        if self.repaired:
            yield f"# {header(tuple(self.repaired.values()))}\n".encode()
        yield (COLUMNS_1_6 if original else COLUMNS_2_30).encode()
        first_id = 0
        with StepProgress("flows", self.counts.flows) as progress:
            for each in self._wanted():
                group = self._group(each.kind)
                if group is None or self._obstacle(each):
                    continue
                made = self._make(each, group, first_id)
                for block in rows(made.schedule, _form(each, group, made, original=original)):
                    yield block
                    progress.advance(block.count(b"\n"))
                first_id += made.schedule.flow_count

    def summary(self, output: Path, group: RankGroup | None) -> Summary:
        """The summary of what was written, and why so."""
        counts = self.counts
        repaired = [f"{each.name} ({each.what})" for each in self.repaired.values()]
        data: dict[str, JsonValue] = {
            "output": str(output),
            "collectives": counts.collectives,
            "flows": counts.flows,
            "bytes": counts.byte_count,
            "skipped": counts.skipped,
            "repaired": repaired,
            "kept": list(self.kept),
        }
        lines = [f"{output}: {counts.flows} flows, {counts.byte_count} bytes"]
        if group and self.first:
            lines[0] += f"; {group.kind} group of {len(group.members)} ranks on {counted(group.server_count, 'server')}"
            lines.append(_describe(self.first, group, data))
        else:
            lines[0] += f"; {counted(counts.collectives, 'collective')}"
        lines += [f"without flows: {counted(number, 'collective')}: {why}" for why, number in counts.skipped.items()]
        lines += [f"repaired: {each}" for each in repaired]
        lines += [f"kept mistake of the original: {each}" for each in self.kept]
        return Summary("\n".join(lines), data)


def _describe(made: MadeFlows, group: RankGroup, data: dict[str, JsonValue]) -> str:
    """A line about a single collective, whose facts go into `data` too."""
    label = PROTOCOL_NAMES[made.protocol] if made.protocol >= 0 else "not labelled"
    data |= {
        "ranks": len(group.members),
        "servers": group.server_count,
        "rings": group.local_count,
        "trees": 2 * group.local_count,
        "algorithm": made.choice.name,
        "algorithm_number": made.schedule.algorithm,
        "protocol": label,
        "why": made.choice.why,
        "modelled_us": {each.name: each.us for each in made.choice.candidates},
    }
    return f"algorithm {made.choice.name} ({made.choice.why}); protocol {label}"


def _form(each: WorkloadCollective, group: RankGroup, made: MadeFlows, *, original: bool) -> RowForm:
    """The cells with which each row of a collective begins."""
    schedule = made.schedule
    if original:
        name = ORIGINAL_NAMES.get(each.op, each.op)
        return RowForm(f"{name},{each.size_bytes},{schedule.algorithm},{made.protocol},", True)
    number = OP_NUMBERS[each.op]
    key = f"{each.kind}_{group.number}_{each.layer}_{each.state}_{number}_{each.size_bytes}"
    return RowForm(f"{key},{number},{each.size_bytes},{schedule.algorithm},{made.protocol},", False)
