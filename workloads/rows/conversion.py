"""Converts a call into a row, and a row of a real framework into AICB's columns."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import Any

from common.garbage import without_collection
from workloads.rows.blocks import Block
from workloads.rows.calls import GROUPS, Call
from workloads.rows.folding import fold
from workloads.rows.ops import AICB_GROUPS, AICB_TYPES, EPOCH_END, CommGroup, CommType, LogItem, kernel_row
from workloads.rows.ranks import split_module

AICB_TYPE = {CommType.all_to_all_single: CommType.all_to_all}
AICB_GROUP = {
    CommGroup.tp_ep_group: CommGroup.ep_tp_group,
    CommGroup.expert_tp_group: CommGroup.tp_group,
    CommGroup.expert_dp_group: CommGroup.ep_dp_group,
    CommGroup.dp_cp_group: CommGroup.dp_group,
    CommGroup.dp_shard_group: CommGroup.dp_group,
    CommGroup.position_embedding_group: CommGroup.embedding_group,
}
"""Groups with the same role in AICB; any other of a real framework becomes `all`, with its own size."""


def item_of(call: Call) -> LogItem:
    """A call's row, whose place says when it is issued. AICB's columns have type, group, bytes and phase."""
    more: dict[str, Any] = {
        "dtype": call.dtype, "module": call.module or None, "micro_batch": call.micro_batch, "phase": call.phase
    }  # fmt: skip
    if call.kernel:
        return kernel_row(call.kernel, call.bytes, call.phase, **more)
    return LogItem(
        call.comm_type, GROUPS[call.group], len(call.ranks), call.bytes, call.phase, ranks=call.ranks,
        in_splits=call.in_splits, out_splits=call.out_splits, peer=call.peer, overlap=call.overlap, **more,
    )  # fmt: skip


@without_collection()
def rows_of(ops: Sequence[Call], ends: Sequence[int] | None = None) -> Block[LogItem]:
    """The rows of traced calls as blocks, found by `fold` in linear time.

    ends: ascending numbers of ops before each epoch's end: first that of the set-up, then of each iteration. By default
    the set-up is the ops of phase init at the beginning, and all others are one iteration.

    Raises:
        ValueError: an op breaks a definition of `Call`, or the ends are not ascending and within the ops.
    """
    if ends is None:
        ends = (next((at for at, op in enumerate(ops) if op.phase != "init"), len(ops)), len(ops))
    if list(ends) != sorted(ends) or (ends and not 0 <= ends[0] <= ends[-1] <= len(ops)):
        raise ValueError(f"ends {list(ends)} are not ascending numbers of at most {len(ops)} ops")
    stated = map(attrgetter(*_OP_KIND), ops)
    templates, layers = _layers(map(attrgetter("module"), ops))
    batches = list(map(attrgetter("micro_batch"), ops))
    names: defaultdict[Hashable, int] = defaultdict(count().__next__)
    kinds = list(map(names.__getitem__, zip(stated, templates, [batch is None for batch in batches], strict=True)))
    rows: list[Call | LogItem] = list(ops)
    for number, end in reversed(list(enumerate(ends))):
        rows.insert(end, EPOCH_END)
        kinds.insert(end, names["end of an iteration" if number else "end of the set-up"])
        layers.insert(end, None)
        batches.insert(end, None)
    return fold(rows, kinds, layers, batches).map(lambda row: _checked_item(row, ops))


@without_collection()
def fold_items(items: Sequence[LogItem]) -> Block[LogItem]:
    """The rows as blocks, found by `fold` in linear time."""
    columns = [list(map(attrgetter(name), items)) for name in _ITEM_KIND]
    templates, layers = _layers(map(attrgetter("module"), items))
    batches = list(map(attrgetter("micro_batch"), items))
    # 1 and 1.0 are equal, but no text says both.
    types = [map(type, map(attrgetter(name), items)) for name in ("msg_size", "elapsed_time", "algbw", "busbw")]
    return fold(
        items, zip(*columns, *types, templates, [batch is None for batch in batches], strict=True), layers, batches
    )


def folded(block: Block[LogItem]) -> Block[LogItem]:
    """The same rows with neighbours that stand in no block of their own folded into blocks."""
    parts: list[LogItem | Block[LogItem]] = []
    for inner, run in groupby(block.parts, lambda part: isinstance(part, Block)):
        members = list(run)
        if inner:
            parts += [folded(part) for part in members if isinstance(part, Block)]
        else:
            parts.append(fold_items([part for part in members if isinstance(part, LogItem)]))
    return Block(parts, block.repeat, block.advance)


_OP_KIND = (
    "comm_type._value_", "group", "ranks", "dtype", "bytes", "phase", "in_splits", "out_splits", "peer", "kernel",
    "overlap",
)  # fmt: skip
_ITEM_KIND = (
    "comm_type._value_",
    *(name for name in LogItem.__slots__ if name not in ("comm_type", "module", "micro_batch")),
)


def _layers(modules: Iterable[str | None]) -> tuple[list[Hashable], list[int | None]]:
    """Modules as what is equal in all layers, and the layers' numbers."""
    known: dict[str | None, tuple[Hashable, int | None]] = {}
    found = []
    for module in modules:
        parts = known.get(module)
        if parts is None:
            split = split_module(module) if module else None
            parts = known[module] = (module, None) if split is None else ((split[0], split[2]), split[1])
        found.append(parts)
    return [template for template, _ in found], [layer for _, layer in found]


def _checked_item(row: Call | LogItem, ops: Sequence[Call]) -> LogItem:
    if isinstance(row, LogItem):
        return row
    problems = row.problems()
    if problems:
        raise ValueError(f"op {ops.index(row)}: {'; '.join(problems)}")
    return item_of(row)


def aicb_item(item: LogItem) -> LogItem:
    """The row in AICB's columns; its stage is the phase and the module without the number of the layer.

    Raises:
        ValueError: AICB's files have no such type.
    """
    comm_type = AICB_TYPE.get(item.comm_type, item.comm_type)
    if comm_type not in AICB_TYPES:
        raise ValueError(f"{comm_type.name} has no place in AICB's format: write the file without --format aicb")
    group = item.comm_group
    if group is not None and group not in AICB_GROUPS:
        group = AICB_GROUP.get(group, CommGroup.all)
    stage = item.stage
    if item.module is not None:
        found = split_module(item.module)
        module = item.module if found is None else found[0].removesuffix(".") + found[2]
        stage = f"{stage}.{module}"
    return LogItem(
        comm_type, group, item.comm_group_size, item.msg_size, stage, item.dst, item.src, item.additional,
        item.elapsed_time, item.algbw, item.busbw, item.count,
    )  # fmt: skip


def aicb_rows(rows: Block[LogItem]) -> Block[LogItem]:
    """All rows in AICB's columns. Waiting in pieces, numbers of layers and micro-batches, dtypes and splits are lost.

    Raises:
        ValueError: AICB's files have no such type.
    """
    return rows.map(aicb_item, advance=False)
