"""Executes the rows of a flow file on integers, and says whether the result is the collective's.

It knows the columns and what each collective means, and nothing of how the flows were made. Flows that wait for one
another carry the same piece of data; a piece is an integer on each rank. A flow carries what it waits for and nothing
else: the sum of what its parents brought to its source, and the source's own integer if they do not contain it.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """A row of the file."""

    flow: int
    channel: int
    source: int
    target: int
    size: int
    parents: tuple[int, ...]


class Piece(NamedTuple):
    """Flows that carry the same data, and the rank it comes from or goes to (-1: it belongs to all)."""

    owner: int
    size: int
    flows: list[Row]


def parse(text: str) -> list[Row]:
    """The rows of a file, which may begin with a line of comment."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return [
        Row(
            int(row["flow_id"]),
            int(row["channel_id"]),
            int(row["src"]),
            int(row["dest"]),
            int(row["flow_size"]),
            tuple(int(parent) for parent in row["parent_flow_ids"].split(";") if parent),
        )
        for row in csv.DictReader(lines)
    ]


def check(rows: list[Row], op: str, members: tuple[int, ...], size: int) -> None:
    """Execute the rows; an AssertionError says what the result lacks. `size` is the buffer's, in bytes."""
    by_id = {row.flow: row for row in rows}
    assert len(by_id) == len(rows), "ids are not unique"
    assert sorted(by_id) == list(range(len(rows))), "ids have gaps"
    for row in rows:
        assert row.size > 0 and row.source != row.target, row
        assert all(by_id[parent].target == row.source for parent in row.parents), f"{row} waits for data of others"
    pieces = _pieces(rows, op)
    for piece in pieces:
        assert {row.size for row in piece.flows} == {piece.size}, "data of a piece has different sizes"
    {
        "AllReduce": _check_all_reduce,
        "ReduceScatter": _check_reduce_scatter,
        "AllGather": _check_all_gather,
        "Broadcast": _check_all_gather,
        "AllToAll": _check_all_to_all,
    }[op](pieces, members, size)
    if op == "Broadcast":
        assert {piece.owner for piece in pieces} == {members[0]}


def _pieces(rows: list[Row], op: str) -> list[Piece]:
    """Flows joined by their parents; on a channel also by the rank at which they begin (gather) or end (scatter)."""
    leader = {row.flow: row.flow for row in rows}

    def find(flow: int) -> int:
        while leader[flow] != flow:
            leader[flow] = leader[leader[flow]]
            flow = leader[flow]
        return flow

    for row in rows:
        for parent in row.parents:
            leader[find(parent)] = find(row.flow)
    together: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        together[find(row.flow)].append(row)
    joined: dict[tuple[int, ...], list[Row]] = defaultdict(list)
    owners = {}
    for number, flows in together.items():
        has_children = {parent for row in flows for parent in row.parents}
        begins = {row.source for row in flows if not row.parents}
        ends = {row.target for row in flows if row.flow not in has_children}
        owner = {"AllReduce": {-1}, "ReduceScatter": ends, "AllToAll": begins}.get(op, begins)
        assert len(owner) == 1, f"a piece begins or ends at ranks {owner}"
        alone = op in ("AllReduce", "AllToAll")
        key = (number,) if alone else (flows[0].channel, *owner)
        joined[key] += flows
        owners[key] = next(iter(owner))
    return [Piece(owners[key], flows[0].size, flows) for key, flows in joined.items()]


class _Held(NamedTuple):
    """An integer, and the ranks whose integers it is the sum of."""

    value: int
    ranks: frozenset[int]


NOTHING = _Held(0, frozenset())


def _sum(parts: Iterable[_Held], own: _Held) -> _Held:
    """Parts that are disjoint or all the same, and the own integer if none has it."""
    total = NOTHING
    for part in parts:
        if part == total:
            continue
        assert not part.ranks & total.ranks, "an integer is added twice"
        total = _Held(total.value + part.value, total.ranks | part.ranks)
    if own.ranks <= total.ranks:
        return total
    assert not own.ranks & total.ranks, "an integer is added twice"
    return _Held(total.value + own.value, total.ranks | own.ranks)


def _execute(flows: Iterable[Row], own: dict[int, _Held]) -> dict[int, list[_Held]]:
    """What arrives at every node, in an order in which every flow comes after its parents."""
    waiting = {row.flow: row for row in flows}
    carried: dict[int, _Held] = {}
    arrived: dict[int, list[_Held]] = defaultdict(list)
    while waiting:
        ready = [row for row in waiting.values() if all(parent in carried for parent in row.parents)]
        assert ready, "the flows wait for one another in a circle"
        for row in ready:
            del waiting[row.flow]
            parts = [carried[parent] for parent in row.parents]
            carried[row.flow] = _sum(parts, own.get(row.source, NOTHING))
            assert carried[row.flow].ranks, f"{row} carries nothing"
            arrived[row.target].append(carried[row.flow])
    return arrived


def _result(arrived: list[_Held], own: _Held, total: _Held) -> _Held:
    """What a rank ends with: the total if it came, else what came in parts and its own."""
    return total if total in arrived else _sum(arrived, own)


def _own(members: tuple[int, ...]) -> dict[int, _Held]:
    """An integer on every rank, such that no two sets of ranks have the same sum."""
    return {rank: _Held(1 << place, frozenset([rank])) for place, rank in enumerate(members)}


def _check_all_reduce(pieces: list[Piece], members: tuple[int, ...], size: int) -> None:
    assert sum(piece.size for piece in pieces) == size, "bytes are missing"
    own = _own(members)
    total = _sum(own.values(), NOTHING)
    for piece in pieces:
        arrived = _execute(piece.flows, own)
        results = {_result(arrived[rank], own[rank], total) for rank in members}
        assert results == {total}, "a rank lacks the sum"


def _check_reduce_scatter(pieces: list[Piece], members: tuple[int, ...], size: int) -> None:
    _check_shares(pieces, members, size)
    own = _own(members)
    total = _sum(own.values(), NOTHING)
    for piece in pieces:
        arrived = _execute(piece.flows, own)
        assert _result(arrived[piece.owner], own[piece.owner], total) == total, "a rank lacks its block of the sum"


def _check_all_gather(pieces: list[Piece], members: tuple[int, ...], size: int) -> None:
    owners = {piece.owner for piece in pieces}
    _check_shares(pieces, members if len(owners) > 1 or size < len(members) else tuple(owners), size)
    for piece in pieces:
        data = _Held(1, frozenset([piece.owner]))
        arrived = _execute(piece.flows, {piece.owner: data})
        assert all(set(arrived[rank]) == {data} for rank in members if rank != piece.owner), "a rank lacks a block"


def _check_shares(pieces: list[Piece], owners: tuple[int, ...], size: int) -> None:
    """Every owner has about its share of the buffer, and together they have all of it."""
    shares = dict.fromkeys(owners, 0)
    for piece in pieces:
        shares[piece.owner] += piece.size
    assert sum(shares.values()) == size, "bytes are missing"
    assert list(shares.values()) == sorted(shares.values(), reverse=True), "blocks are not those of their ranks"
    assert max(shares.values()) - min(shares.values()) <= 16, shares


def _check_all_to_all(pieces: list[Piece], members: tuple[int, ...], size: int) -> None:
    blocks: dict[int, int] = {}
    pairs = set()
    for piece in pieces:
        passed_on = {row.source for row in piece.flows if row.parents}
        (receiver,) = {row.target for row in piece.flows} - passed_on
        data = _Held(1, frozenset([piece.owner]))
        assert _execute(piece.flows, {piece.owner: data})[receiver] == [data], "a block does not arrive once"
        assert (piece.owner, receiver) not in pairs, "a block is sent twice"
        pairs.add((piece.owner, receiver))
        assert blocks.setdefault(receiver, piece.size) == piece.size, "senders disagree on a block's size"
    wanted = {(one, other) for one in members for other in blocks if one != other}
    assert pairs == wanted, "pairs are missing"
    assert sum(blocks.values()) == size, "bytes are missing"
    assert len(blocks) == len(members) or size < len(members)
