"""Finds the lanes of many flows at once, each of which takes a way of its own, what these carry, and their lines.

The rules are those of `lanes` and of `files`.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulation.network.flow_level.fluid_state import Fluid, Lanes, Whole
from simulation.network.flow_level.lanes import CostModel, LaneBook, SentFlows, Way, on_wire
from simulation.network.flow_level.port_routes import DPORT, FIRST_SPORT, PortRoutes
from simulation.network.hashing import HOST_SEED, address, hashed

Ints = NDArray[np.int64]
NO_PORT = -1


class _Paths:
    """Follows flows from node to node."""

    def __init__(self, ways: PortRoutes) -> None:
        self._ways, self._peer = ways, np.array(ways.peer, np.int64)

    def between(self, sources: Ints, targets: Ints, words: Ints) -> Ints:
        """The ports of each flow, shape (flows, hops), NO_PORT behind the last; `words` hold both port numbers."""
        nodes, columns = sources.copy(), list[Ints]()
        while len(on := np.flatnonzero(nodes != targets)):
            column = np.full(len(nodes), NO_PORT, np.int64)
            column[on] = self._next(nodes[on], sources[on], targets[on], words[on])
            nodes[on] = self._peer[column[on]]
            columns.append(column)
        return np.stack(columns, 1)

    def _next(self, nodes: Ints, sources: Ints, targets: Ints, words: Ints) -> Ints:
        """The port of each flow at its node: where there are several, a hash chooses."""
        count = len(self._ways.roles)
        both, place = np.unique(nodes * count + targets, return_inverse=True)
        lists = list(map(self._ways.next_ports, (both // count).tolist(), (both % count).tolist()))
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        ports = np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))
        choice = np.zeros(len(nodes), np.int64)
        several = np.flatnonzero(lengths[place] > 1)
        if len(several):
            seeds = np.where(nodes == sources, HOST_SEED, nodes)[several]
            keys = (address(sources[several]), address(targets[several]), words[several], seeds)
            mixed = hashed(*(each.astype(np.uint64) for each in keys))
            choice[several] = mixed.astype(np.int64) % lengths[place[several]]
        return ports[begins[place] + choice]


def add_lanes(book: LaneBook, model: CostModel, sent: SentFlows) -> "array[int]":
    """Put the lanes of flows into a book that has none; returns the lane of each flow, hop by hop."""
    source, target, first, stride, steps, size = (np.array(column, np.int64) for column in sent)
    hop = np.repeat(np.arange(len(steps)), steps)
    step = np.arange(len(hop)) - np.repeat(np.cumsum(steps) - steps, steps)
    sport = FIRST_SPORT + first[hop] + stride[hop] * step
    paths = _Paths(model.ways)
    forward = paths.between(source[hop], target[hop], sport | DPORT << 16)
    back = paths.between(target[hop], source[hop], DPORT | sport << 16)
    rows, width = np.concatenate([forward, back, size[hop, None]], 1), forward.shape[1]
    ones, lane_of = _distinct(rows)
    _Columns(model, forward[ones], back[ones], rows[ones, -1]).fill(book, width)
    return _column(lane_of)


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """One place of each different row, in the order of the rows, and which of these each row is; none is below -1."""
    keys, least = [], 1 << 62
    for column in rows.T:
        bound = int(column.max()) + 2
        if least * bound >= 1 << 62:
            keys.append(np.zeros(len(rows), np.int64))
            least = 1
        keys[-1] *= bound
        keys[-1] += column + 1
        least *= bound
    order = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(keys[0], kind="stable")
    new = np.zeros(len(rows), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= np.diff(key[order]) != 0
    number = np.empty(len(rows), np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def _column(values: NDArray[np.generic]) -> "array[Any]":
    """The values as a column of a state."""
    kind = "d" if values.dtype.kind == "f" else "q"
    found = array(kind)
    found.frombytes(np.ascontiguousarray(values, np.float64 if kind == "d" else np.int64).data.cast("B"))
    return found


class _Columns:
    """Ports and sizes of lanes, with the costs of each kind of them."""

    def __init__(self, model: CostModel, forward: Ints, back: Ints, sizes: Ints) -> None:
        self.forward, self.back = forward, back
        self.bursts = np.minimum(sizes, model.window)
        kind_of = np.array([*model.ways.kind_of, NO_PORT], np.int64)  # that of NO_PORT is the last
        kinds = np.concatenate([kind_of[forward], kind_of[back], sizes[:, None]], 1)
        ones, self.of_lane = _distinct(kinds)
        self.costs = [
            model.costs(Way(*(tuple(side[side >= 0].tolist()) for side in (forward[one], back[one]))), int(sizes[one]))
            for one in ones.tolist()
        ]

    def _table(self, rows: Sequence[Sequence[float]], width: int) -> NDArray[np.float64]:
        """The rows of each lane by kind, shape (lanes, width), 0 behind the last."""
        table = np.zeros((len(rows), width))
        for place, row in enumerate(rows):
            table[place, : len(row)] = row
        return table[self.of_lane]

    def fill(self, book: LaneBook, width: int) -> None:
        """Make the lanes those of a book; `width` ports are those of the longest way forward."""
        back_width = self.back.shape[1]
        data = self._table([each.forward for each in self.costs], width)
        acks = self._table([each.back for each in self.costs], back_width)
        paces = self._table([each.paces for each in self.costs], back_width)
        links = np.concatenate([self.forward, self.back], 1)
        used = np.unique(links)
        used = used[used >= 0]
        numbers = np.full(int(links.max()) + 1, NO_PORT, np.int64)
        numbers[used] = [book.number(port) for port in used.tolist()]
        cost = np.concatenate([data, acks], 1)
        burst = np.concatenate([np.repeat(self.bursts[:, None], width, 1), np.zeros_like(self.back)], 1)
        taken, there = cost > 0, self.back >= 0
        begins, waits = (np.concatenate([[0], np.cumsum(each.sum(1))]) for each in (taken, there))
        book.free = bool(((self.forward >= 0) & (data <= 0)).any())
        costs = np.array([(each.delay, each.half, *each.window) for each in self.costs]).T
        columns = (
            begins,
            begins[:-1] + taken[:, :width].sum(1),
            numbers[links[taken]],
            cost[taken],
            burst[taken],
            waits,
            numbers[self.back[there]],
            paces[there],
            *(values[self.of_lane] for values in costs),
            self.bursts,
        )
        book.lanes = Lanes._make([*map(_column, columns), 0])


def loads_of_lanes(
    state: Fluid, ports: Sequence[int], payload: int, begin: float, slice_ns: float, slices: int
) -> dict[int, list[float]]:
    """Bytes on the wire of flows that ended, by port, in slices of the time from `begin` on (ns); `ports` by link."""
    lanes, waits = np.asarray(state.flow_lane), np.asarray(state.wait_begin)
    flow, links = _listed(np.asarray(state.load_begin)[lanes], np.asarray(state.data_end)[lanes], state.load_link)
    back, ack_links = _listed(waits[lanes], waits[lanes + 1], state.wait_link)
    starts, ends = np.asarray(state.start), np.asarray(state.end)
    sizes = np.where(ends >= 0, np.asarray(state.hop_size)[np.asarray(state.flow_hop)], 0)
    data, acks = on_wire(sizes, payload)
    took = ends - starts
    at_once = np.where(took > 0, -1, np.clip((starts - begin) // slice_ns, 0, slices - 1).astype(np.int64))
    edges = np.concatenate([[-np.inf], begin + slice_ns * np.arange(1, slices), [np.inf]])
    table = np.zeros((len(ports), slices))
    for number, (since, until) in enumerate(pairwise(edges.tolist())):
        within = np.clip(np.minimum(ends, until) - np.maximum(starts, since), 0, None)
        part = np.where(at_once < 0, within / np.where(took > 0, took, 1.0), at_once == number)
        there = np.bincount(links, (part * data)[flow], len(ports))
        table[:, number] = there + np.bincount(ack_links, (part * acks)[back], len(ports))
    return {ports[link]: table[link].tolist() for link in np.unique(np.concatenate([links, ack_links])).tolist()}


def lines_of_flows(
    sent: SentFlows, state: Fluid, names: Sequence[str], ideals: Sequence[int], at_once: int
) -> Iterator[bytes]:
    """The lines of flows that ended, in order of their ends, `at_once` at a time; `names` are those of nodes, `ideals`
    the ns of a flow of each hop alone.
    """
    starts, ends = np.asarray(state.start), np.asarray(state.end)
    order = np.argsort(ends, kind="stable")
    order = order[np.searchsorted(ends, 0.0, sorter=order) :]
    source, target, first, stride, steps, size = (np.array(column, np.int64) for column in sent)
    hops, begins, ideal = np.asarray(state.flow_hop), np.cumsum(steps) - steps, np.array(ideals, np.int64)
    for at in range(0, len(order), at_once):
        flow = order[at : at + at_once]
        hop = hops[flow]
        sport = FIRST_SPORT + first[hop] + stride[hop] * (flow - begins[hop])
        begun = np.rint(starts[flow]).astype(np.int64)
        took = np.rint(ends[flow]).astype(np.int64) - begun
        columns = (source[hop], target[hop], sport, size[hop], begun, took, ideal[hop])
        lines = [
            f"{names[one]} {names[other]} {port} {DPORT} {data} {since} {ns} {alone}\n"
            for one, other, port, data, since, ns, alone in zip(*(column.tolist() for column in columns), strict=True)
        ]
        yield "".join(lines).encode("ascii")


def _listed(begins: Ints, ends: Ints, links: Whole) -> tuple[Ints, Ints]:
    """The flow and the link of each place from the begin to the end of every flow."""
    counts = ends - begins
    flow = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(flow)) - np.repeat(np.cumsum(counts) - counts, counts)
    return flow, np.asarray(links)[begins[flow] + place]
