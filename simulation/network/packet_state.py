"""Holds the state of a packet-level simulation in arrays of records, which compiled code reads and writes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulation.network.conf import NetworkConf
from simulation.network.hashing import address
from simulation.network.routing import Ints, Places, Ports, Routes
from simulation.topology.fabric import GPU, SWITCH

Record: TypeAlias = Any  # one of the records below: its fields are whole or real numbers
Records: TypeAlias = NDArray[Any]

NONE = -1
HEADER_BYTES, ACK_BYTES, PAUSE_BYTES = 52, 60, 43
RESERVED_BYTES = 4096  # of a switch's buffer, for each port
SLOTS = 8192  # ns that the wheel of events reaches ahead, a power of two
FINISHED, NO_ROOM, PAST_LIMIT, STALLED, LINKS_CHANGE = range(5)  # how a slice of the loop ends
COMPUTE, BLOCK, QUEUE, SEND, END = range(5)  # kinds of steps
SENDS_ON, TURNS, MAY_ADD = range(3)  # a flow's `turn`
MOST_SEED = 1 << 32  # of numpy's generator
WORD = 64  # slots in a word of `filled`, which has a bit for each
BINS = 128  # of the time, in which the bytes of a port are counted
DATA, ACK, NACK, PAUSE, RESUME = range(5)  # kinds of packets


def _record(whole: str, real: str = "") -> np.dtype[np.void]:
    """A record of whole and real numbers, all of 64 bits."""
    return np.dtype([*((name, np.int64) for name in whole.split()), *((name, np.float64) for name in real.split())])


# What a port is (see Ports; data_time and ack_time: ns for a whole packet, an ACK), what its switch allows it (bytes),
# and what changes: its queue (at a GPU that of its ACKs), its PFC, and the turn of a GPU's flows. in_headroom and
# in_shared are bytes that entered a switch by this port.
PORT = _record(
    "owner peer bps delay data_time ack_time kmin kmax headroom pause_shift shared"
    " busy paused head tail urgent queued deepest sent asked_pause in_headroom in_shared"
    " next_send last member_begin member_count down",
    "error_rate pmax",
)
NODE = _record("address used released_at")
# What a flow is: `before` and `after` are its neighbours among the flows of a channel from the same sender to the same
# receiver, which handles receipts in that order; `gap` is the time from the last parent to the start, `release_gap`
# that between receipts that were held back (ns), `heir` waits for the flow's last byte to leave its GPU (NONE: no flow
# does), `turn` says when it carries sums (see rank_steps), `luck` decides with other numbers what is lost or marked.
# What changes: bytes sent, acknowledged and expected, its rate, times, and `replies`, those with the expected byte.
FLOW = _record(
    "size next_byte acked available expected slowed end source target child_begin child_end before after heir gap"
    " release_gap turn pair collective waiting sport start released alpha_mark decrease_mark stage recovery nack_time"
    " nack_byte seen luck begun_again replies",
    "rate target_rate alpha",
)
PACKET = _record("flow kind number size hop port marked following")
EVENT = _record("time order what about")
# See event_wheel: an event on the wheel, and the first and the last one of a slot.
LINK = _record("order following")
SLOT = _record("first last")
# A step of a program (see rank_steps); the place of a rank in its own, the collective that it waits for, when it came
# to the end of its steps and when all was done (NONE: not yet), and how many times as long as others it computes; its
# team, how many of the team's collectives it took, and whether it waits for the next (see turns). A part is what a rank
# has of a collective: how many of its flows are not complete yet, when the rank came to it, when it ended (NONE: not
# yet), the time from its end to the next step (ns), and whether the rank adds (see rank_steps).
STEP = _record("kind value")
RANK = _record("place waits_for walked ended team took idle", "slowness")
PART = _record("issue_begin issue_end pending begin end end_gap adds")
TOTALS = _record(
    "heap near timers free left planned now marks decreases pauses nacks lost done handled resent shuffled errors ended"
    " bin_shift outages outage drawn"
)


class Rules(NamedTuple):
    """The scalars of a configuration; see NetworkConf. `window` is in bytes.

    `first_gap` is the time from the issue of a collective to its first flow (ns).
    """

    first_gap: int
    payload: int
    window: int
    variable_window: bool
    alpha_interval: int
    decrease_interval: int
    recovery_interval: int
    ewma_gain: float
    fast_recoveries: int
    rate_step: float
    rate_leap: float
    min_rate: float
    clamp_target: bool


class Simulation(NamedTuple):
    """All that the loop reads and writes; `members[port.member_begin:]` are a GPU's flows in their turn.

    `parts[collective, rank]` names its flows in `issued`; `queues[rank]` has how many collectives that do not block are
    not done, then these, of which the first runs; `taken[team]` how many a team took, then these.
    `usage[port, bin]` are bytes; a bin is 2**totals.bin_shift ns.
    `orders` are random numbers, by which starts are shuffled.
    """

    ports: Records
    nodes: Records
    flows: Records
    packets: Records
    events: Records
    wheel: Records
    filled: NDArray[np.uint64]
    links: Records
    totals: Records
    ranks: Records
    steps: Records
    parts: Records
    issued: Ints
    queues: Ints
    taken: Ints
    children: Ints
    members: Ints
    path: Places
    back: Places
    pair_count: Ints
    usage: Ints
    route_begin: Ints
    route_count: Ints
    route_hops: Ints
    orders: Ints
    rules: Rules


def rules_of(conf: NetworkConf, window: int, first_gap: int) -> Rules:
    """The scalars of a configuration for compiled code."""
    return Rules(
        first_gap, conf.payload_bytes, window, conf.variable_window, conf.alpha_interval, conf.decrease_interval,
        conf.recovery_interval, conf.ewma_gain, conf.fast_recoveries, conf.rate_step, conf.rate_leap, conf.min_rate,
        conf.clamp_target,
    )  # fmt: skip


def port_records(ports: Ports, roles: Sequence[int], conf: NetworkConf) -> Records:
    """The ports with the thresholds of their switches, before the first packet.

    Headroom is three times what arrives within the propagation delay, 4 KiB a port are reserved, the rest of a switch's
    buffer is shared; a port pauses its sender above the free shared bytes >> 3, one less for each halving from its
    speed to that of the first GPU's first link (in SimAI's files its NVLink, so that all ports have 3).
    """
    records = np.zeros(len(ports.owner), PORT)
    records["owner"], records["peer"], records["bps"] = ports.owner, ports.peer, ports.bps
    records["delay"], records["error_rate"] = ports.delay_ns, ports.error_rate
    records["data_time"] = (conf.payload_bytes + HEADER_BYTES) * 8_000_000_000 // ports.bps
    records["ack_time"] = ACK_BYTES * 8_000_000_000 // ports.bps
    for name in ("head", "tail", "urgent", "next_send"):
        records[name] = NONE
    role = np.asarray(roles)[ports.owner]
    records["kmin"] = records["kmax"] = 1 << 60
    # Divided before it is multiplied: 1e15 bit/s times 1 s in ns is no 64-bit number.
    whole, rest = np.divmod(ports.bps, 8_000_000_000)
    records["headroom"] = (whole * ports.delay_ns + rest * ports.delay_ns // 8_000_000_000) * 3
    first = int(ports.bps[np.flatnonzero(role == GPU)[0]])
    for port, bps in enumerate(ports.bps.tolist()):
        records["pause_shift"][port] = _pause_shift(bps, first)
        if role[port] == SWITCH and conf.ecn:
            speed = conf.speed_of(bps)
            records["kmin"][port], records["kmax"][port] = int(conf.kmin[speed] * 1000), int(conf.kmax[speed] * 1000)
            records["pmax"][port] = conf.pmax[speed]
    fixed = np.bincount(ports.owner, weights=records["headroom"] + RESERVED_BYTES)
    records["shared"] = (conf.buffer_bytes - fixed[ports.owner]).astype(np.int64)
    return records


def _pause_shift(bps: int, first: int) -> int:
    left = 3
    while bps > first and left > 0:
        bps, left = bps // 2, left - 1
    return left


def node_records(count: int) -> Records:
    """The nodes with their addresses."""
    records = np.zeros(count, NODE)
    records["address"] = address(np.arange(count))
    return records


class RankWork(NamedTuple):
    """The work of the ranks: the steps of all programs, the flows of the collectives, and which flows wait for
    which.
    """

    flows: Records
    children: Ints
    ranks: Records
    steps: Records
    parts: Records
    issued: Ints


def begin(
    ports: Records,
    nodes: Records,
    routes: Routes,
    work: RankWork,
    rules: Rules,
    *,
    seed: int = 0,
    outages: bool = False,
) -> Simulation:
    """The state before the first event; `grown` gives it more room for packets and events.

    Args:
        outages: links go down during the run, so that a flow may begin at any port of its GPU.
    """
    flows, count = work.flows, len(work.flows)
    room = 4 * len(ports) + 2 * count + 4096
    starting = np.bincount(flows["source"], minlength=len(nodes))[ports["owner"]] if outages else None
    starting = _starting(routes, flows, len(ports)) if starting is None else starting
    ports["member_begin"] = np.concatenate([[0], np.cumsum(starting)[:-1]])
    packets = np.zeros(room, PACKET)
    packets["following"] = np.arange(1, room + 1)
    totals = np.zeros(1, TOTALS)
    totals["left"], totals["shuffled"] = room, seed
    totals["errors"] = outages or bool((ports["error_rate"] > 0).any())
    totals["outages"], totals["bin_shift"] = outages, 8
    collectives, rank_count = work.parts.shape
    columns = routes.longest + 1  # NONE ends a way
    wheel = np.zeros(SLOTS, SLOT)
    wheel["first"] = NONE
    draw = np.random.RandomState((seed + 1) % MOST_SEED)
    return Simulation(
        ports, nodes, flows, packets, np.zeros(2 * room, EVENT), wheel, np.zeros(SLOTS // WORD, np.uint64),
        np.zeros(len(ports) + room, LINK), totals, work.ranks, work.steps, work.parts, work.issued,
        np.zeros((rank_count, collectives + 1), np.int64), np.zeros((rank_count, collectives + 1), np.int64),
        work.children,
        np.zeros(int(starting.sum()), np.int64), np.full((count, columns), NONE, np.int32),
        np.full((count, columns), NONE, np.int32), np.zeros(int(flows["pair"].max(initial=-1)) + 1, np.int64),
        np.zeros((len(ports), BINS), np.int64), routes.begin, routes.counts, routes.hops,
        draw.randint(0, 1 << 60, max(count, 1) if seed else 1, np.int64), rules,
    )  # fmt: skip


def _starting(routes: Routes, flows: Records, ports: int) -> Ints:
    """How many flows may leave by each port."""
    found = np.zeros(ports, np.int64)
    pairs, numbers = np.unique(flows["source"] * len(routes.begin) + flows["target"], return_counts=True)
    for pair, number in zip(pairs.tolist(), numbers.tolist(), strict=True):
        source, target = divmod(pair, len(routes.begin))
        first = int(routes.begin[source, target])
        found[routes.hops[first : first + int(routes.counts[source, target])]] += number
    return found


def rerouted(sim: Simulation, routes: Routes) -> Simulation:
    """The same state with other next hops, and with columns for their longest way."""
    more = ((0, 0), (0, max(routes.longest + 1 - sim.path.shape[1], 0)))
    path, back = (np.pad(each, more, constant_values=NONE) for each in (sim.path, sim.back))
    return sim._replace(
        path=path, back=back, route_begin=routes.begin, route_count=routes.counts, route_hops=routes.hops
    )


def grown(sim: Simulation) -> Simulation:
    """The same state with twice the room for packets and events."""
    room = len(sim.packets)
    packets = np.concatenate([sim.packets, np.zeros(room, PACKET)])
    # The list of free packets ended at `room`, which is the first new one.
    packets["following"][room:] = np.arange(room + 1, 2 * room + 1)
    sim.totals["left"] += room
    events = np.concatenate([sim.events, np.zeros(len(sim.events), EVENT)])
    return sim._replace(packets=packets, events=events, links=np.concatenate([sim.links, np.zeros(room, LINK)]))
