"""Finds the lanes of many flows at once, each of which takes a way of its own, and what these carry.

The rules are those of `lanes` and of `files.LinkLoads`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulation.network.flow_level.fluid_state import Fluid, Whole
from simulation.network.flow_level.lanes import ACK_BYTES, HEADER_BYTES, CostModel, LaneBook, Way
from simulation.network.flow_level.port_routes import DPORT, FIRST_SPORT, HOST_SEED, PortRoutes, address, hashed

Ints = NDArray[np.int64]
NO_PORT = -1


class Sent(NamedTuple):
    """The flows of a hop: its ends, the number of the first among those of the pair, from there to the next, and size.

    `size` is in bytes.
    """

    source: int
    target: int
    first: int
    stride: int
    steps: int
    size: int


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
        next_ports = self._ways.next_ports
        lists = [next_ports(*each) for each in zip((both // count).tolist(), (both % count).tolist(), strict=True)]
        lengths = np.array([len(each) for each in lists], np.int64)
        begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        ports = np.array([port for each in lists for port in each], np.int64)
        choice = np.zeros(len(nodes), np.int64)
        several = np.flatnonzero(lengths[place] > 1)
        if len(several):
            seeds = np.where(nodes == sources, HOST_SEED, nodes)[several]
            keys = (address(sources[several]), address(targets[several]), words[several], seeds)
            mixed = hashed(*(each.astype(np.uint64) for each in keys))
            choice[several] = mixed.astype(np.int64) % lengths[place[several]]
        return ports[begins[place] + choice]


def add_lanes(book: LaneBook, model: CostModel, sent: Sequence[Sent]) -> list[int]:
    """Put the lanes of flows into a book; returns the lane of each flow, hop by hop."""
    source, target, first, stride, steps, size = np.array(sent, np.int64).T
    hop = np.repeat(np.arange(len(sent)), steps)
    step = np.arange(len(hop)) - np.repeat(np.cumsum(steps) - steps, steps)
    sport = FIRST_SPORT + first[hop] + stride[hop] * step
    paths = _Paths(model.ways)
    forward = paths.between(source[hop], target[hop], sport | DPORT << 16)
    back = paths.between(target[hop], source[hop], DPORT | sport << 16)
    rows = np.concatenate([forward, back, size[hop, None]], 1)
    lanes, lane_of = np.unique(rows, axis=0, return_inverse=True)
    length = forward.shape[1]
    _Columns(model, lanes[:, :length], lanes[:, length:-1], lanes[:, -1]).add(book)
    found: list[int] = (lane_of.reshape(-1) + len(book.lanes.delay) - len(lanes)).tolist()
    return found


class _Columns:
    """Ports and sizes of lanes, with the costs of each kind of them."""

    def __init__(self, model: CostModel, forward: Ints, back: Ints, sizes: Ints) -> None:
        self.forward, self.back = forward, back
        self.bursts = np.minimum(sizes, model.window)
        kind_of = np.array([*model.ways.kind_of, NO_PORT], np.int64)  # that of NO_PORT is the last
        kinds = np.concatenate([kind_of[forward], kind_of[back], sizes[:, None]], 1)
        _kinds, ones, of_lane = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        self.of_lane = of_lane.reshape(-1)
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

    def add(self, book: LaneBook) -> None:
        """Append the lanes to a book."""
        width, back_width = self.forward.shape[1], self.back.shape[1]
        data = self._table([each.forward for each in self.costs], width)
        acks = self._table([each.back for each in self.costs], back_width)
        paces = self._table([each.paces for each in self.costs], back_width)
        numbers = np.full(int(max(self.forward.max(), self.back.max())) + 1, NO_PORT, np.int64)
        used = np.unique(np.concatenate([self.forward.reshape(-1), self.back.reshape(-1)]))
        used = used[used >= 0]
        numbers[used] = [book.number(port) for port in used.tolist()]
        links = np.concatenate([self.forward, self.back], 1)
        cost = np.concatenate([data, acks], 1)
        burst = np.concatenate([np.repeat(self.bursts[:, None], width, 1), np.zeros_like(self.back)], 1)
        taken, lanes = cost > 0, book.lanes
        book.free = book.free or bool(((self.forward >= 0) & (data <= 0)).any())
        begins = len(lanes.load_link) + np.concatenate([[0], np.cumsum(taken.sum(1))])
        lanes.data_end.extend((begins[:-1] + taken[:, :width].sum(1)).tolist())
        lanes.load_begin.extend(begins[1:].tolist())
        lanes.load_link.extend(numbers[links[taken]].tolist())
        lanes.load_cost.extend(cost[taken].tolist())
        lanes.load_burst.extend(burst[taken].tolist())
        there = self.back >= 0
        lanes.wait_begin.extend((len(lanes.wait_link) + np.cumsum(there.sum(1))).tolist())
        lanes.wait_link.extend(numbers[self.back[there]].tolist())
        lanes.wait_byte.extend(paces[there].tolist())
        columns = lanes.of_flows
        for column, values in zip(
            columns, np.array([(each.delay, each.half, *each.window) for each in self.costs]).T, strict=True
        ):
            column.extend(values[self.of_lane].tolist())
        lanes.burst.extend(self.bursts.tolist())


def loads_of_lanes(
    state: Fluid, ports: Sequence[int], payload: int, begin: float, slice_ns: float, slices: int
) -> dict[int, list[float]]:
    """Bytes on the wire on each port that carries any, in slices of the time from `begin` on (ns); `ports` by link."""
    lanes, waits = np.asarray(state.flow_lane), np.asarray(state.wait_begin)
    flow, links = _listed(np.asarray(state.load_begin)[lanes], np.asarray(state.data_end)[lanes], state.load_link)
    back, ack_links = _listed(waits[lanes], waits[lanes + 1], state.wait_link)
    sizes = np.asarray(state.hop_size)[state.flow_hop]
    packets = np.ceil(sizes / payload)
    starts, ends = np.asarray(state.start), np.asarray(state.end)
    took = ends - starts
    at_once = np.where(took > 0, -1, np.clip((starts - begin) // slice_ns, 0, slices - 1).astype(np.int64))
    edges = np.concatenate([[-np.inf], begin + slice_ns * np.arange(1, slices), [np.inf]])
    table = np.zeros((len(ports), slices))
    for number, (since, until) in enumerate(pairwise(edges.tolist())):
        within = np.clip(np.minimum(ends, until) - np.maximum(starts, since), 0, None)
        part = np.where(at_once < 0, within / np.where(took > 0, took, 1.0), at_once == number)
        data, acks = part * (sizes + packets * HEADER_BYTES), part * packets * ACK_BYTES
        table[:, number] = np.bincount(links, data[flow], len(ports)) + np.bincount(ack_links, acks[back], len(ports))
    return {ports[link]: table[link].tolist() for link in np.unique(np.concatenate([links, ack_links])).tolist()}


def _listed(begins: Ints, ends: Ints, links: Whole) -> tuple[Ints, Ints]:
    """The flow and the link of each place from the begin to the end of every flow."""
    counts = ends - begins
    flow = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(flow)) - np.repeat(np.cumsum(counts) - counts, counts)
    return flow, np.asarray(links)[begins[flow] + place]
