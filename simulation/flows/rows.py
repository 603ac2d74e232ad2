"""Writes flows as rows of a CSV file: the columns of SimCCL 2.30, or those of the recordings of SimAI 1.6."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import NamedTuple

from simulation.flows.train import FlowSchedule, FlowTrain

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
