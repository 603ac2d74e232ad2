"""Writes flows of collectives, in either CSV form, and their rings, trees and groups: `python -m simulation flows`."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
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
from simulation.flows.rings import all_rings
from simulation.flows.train import FlowSchedule, FlowTrain
from simulation.flows.trees import all_trees
from simulation.flows.workload import WorkloadCollective, collectives

COLUMNS_2_30 = (
    "collective,op,data_size,algorithm,protocol,channel_id,flow_id,src,dest,flow_size,chunk_id,chunk_count,conn_type,"
    "parent_flow_ids,prev_flow_ids\n"
)
COLUMNS_1_6 = (
    "op,data_size,algorithm,protocol,channel_id,flow_id,src,dest,flow_size,chunk_id,chunk_count,conn_type,"
    "parent_flow_ids,prev_ranks,child_flow_ids\n"
)


class RowForm(NamedTuple):
    """The cells with which all rows of a collective begin, and whether they end with the flows that wait for them."""

    begin: str
    children: bool


def rows(schedule: FlowSchedule, form: RowForm) -> Iterator[bytes]:
    """The rows of a collective, one block for each source: by channel, then by id."""
    for source in schedule.sources:
        trains = schedule.trains(source)
        blocks = []
        for _channel, together in groupby(trains, key=lambda train: train.channel):
            blocks += _channel_rows(list(together), form)
        yield "".join(blocks).encode()


def _channel_rows(trains: list[FlowTrain], form: RowForm) -> list[str]:
    """The rows of trains on one channel, by id."""
    if len(trains) == 1:
        return _train_rows(trains[0], form)
    numbered = [pair for train in trains for pair in zip(train.ids, _train_rows(train, form), strict=True)]
    numbered.sort()
    return [row for _flow_id, row in numbered]


def _single_row(train: FlowTrain, form: RowForm) -> str:
    """The row of a train of one flow."""
    targets, sizes, chunks = train.targets, train.sizes, train.chunks
    target = targets if isinstance(targets, int) else targets[0]
    size = sizes if isinstance(sizes, int) else sizes[0]
    chunk = chunks if isinstance(chunks, int) else chunks[0]
    parents = ";".join([str(ids[0]) for ids in train.parents if ids])
    previous = ";".join(map(str, train.previous))
    row = (
        f"{form.begin}{train.channel},{train.ids[0]},{train.source},{target},{size},{chunk},{train.chunk_count},"
        f"{train.kind},{parents},{previous}"
    )
    return f"{row},{';'.join([str(ids[0]) for ids in train.children if ids])}\n" if form.children else f"{row}\n"


def _train_rows(train: FlowTrain, form: RowForm) -> list[str]:
    count = len(train.ids)
    if count == 1:
        return [_single_row(train, form)]
    begin = f"{form.begin}{train.channel},"
    ends = f",{train.chunk_count},{train.kind},"
    middles = _middles(train)
    chunks: Iterable[int] = repeat(train.chunks) if isinstance(train.chunks, int) else train.chunks
    parents = _lists(train.parents, count, at_end=True)
    last = "," + ";".join(map(str, train.previous))
    columns = zip(train.ids, middles, chunks, parents, strict=False)
    if not form.children:
        last += "\n"
        return [f"{begin}{flow}{middle}{chunk}{ends}{parent}{last}" for flow, middle, chunk, parent in columns]
    last += ","
    children = _lists(train.children, count, at_end=False)
    return [
        f"{begin}{flow}{middle}{chunk}{ends}{parent}{last}{child}\n"
        for (flow, middle, chunk, parent), child in zip(columns, children, strict=False)
    ]


def _middles(train: FlowTrain) -> Iterable[str]:
    """The text between a flow's id and its chunk: source, target, size."""
    targets, sizes = train.targets, train.sizes
    if isinstance(targets, int) and isinstance(sizes, int):
        return repeat(f",{train.source},{targets},{sizes},")
    source = f",{train.source},"
    each_target: Iterable[int] = repeat(targets) if isinstance(targets, int) else targets
    each_size: Iterable[int] = repeat(sizes) if isinstance(sizes, int) else sizes
    return [f"{source}{target},{size}," for target, size in zip(each_target, each_size, strict=False)]


def _lists(columns: tuple[Sequence[int], ...], count: int, *, at_end: bool) -> Iterable[str | int]:
    """The lists of ids of each flow; those that a shorter column does not reach are empty."""
    if not columns:
        return repeat("", count)
    length = len(columns[0])
    texts: Iterable[str | int] = (
        columns[0] if len(columns) == 1 else [";".join(map(str, ids)) for ids in zip(*columns, strict=True)]
    )
    if length == count:
        return texts
    empty = repeat("", count - length)
    return chain(empty, texts) if at_end else chain(texts, empty)


def rings_table(group: RankGroup) -> Iterator[bytes]:
    """One row for each ring and rank: its neighbours, and the ranks where the ring enters and leaves its server."""
    yield b"ring,rank,prev,next,node_recv,node_send\n"
    for ring, hops in enumerate(all_rings(group)):
        lines = (f"{ring},{hop.rank},{hop.previous},{hop.following},{hop.entry},{hop.exit}\n" for hop in hops)
        yield "".join(lines).encode()


def trees_table(group: RankGroup) -> Iterator[bytes]:
    """One row for each tree and rank: its parent, -1 for the root, and its children; ranks no tree covers have none."""
    yield b"tree,rank,up,down\n"
    for number, tree in enumerate(all_trees(group)):
        lines = []
        for rank in group.members:
            up = tree.up.get(rank)
            lines.append(f"{number},{rank},{-1 if up is None else up},{_list(tree.down.get(rank, ()))}\n")
        yield "".join(lines).encode()


def groups_table(groups: Iterable[RankGroup]) -> Iterator[bytes]:
    """One row for each group: its ranks and the NVSwitches of its servers."""
    yield b"group_index,type,nNodes,nRanks,ranks,nvswitches\n"
    for group in groups:
        line = (
            f"{group.number},{group.kind},{group.server_count},{len(group.members)},"
            f"{_list(group.members)},{_list(group.switches)}\n"
        )
        yield line.encode()


def _list(numbers: Sequence[int]) -> str:
    return "".join(f"{number};" for number in numbers)


def find_mistakes(arguments: argparse.Namespace) -> None:
    """Find the mistakes of options and files.

    Raises:
        InputProblems: all of them.
    """
    read_request(arguments)


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
