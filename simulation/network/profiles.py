"""Simulates collectives of single groups packet by packet, once for each kind and in a part of the time.

Equal contention is remembered: groups whose flows cross equal links in the same way take the same time. Steady states
are skipped: flows of many packets are simulated with three small numbers of packets, and their times go on linearly
from there. The second number checks the other two; where it does not fit, or packets are marked or paused, more of the
packets are simulated, at last all. Over links that lose packets all are simulated, and nothing is remembered: each part
loses its own, the same ones when it is simulated again.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from simulation.flows.train import FlowSchedule
from simulation.network.even_use import sent_once, wire_bytes
from simulation.network.job import SENDS, GroupCollective, Job, JobPart, JobPhase
from simulation.network.outcome import Counted
from simulation.network.packet_code import find_all_paths
from simulation.network.packets import Network, parents_of, prepared, simulate
from simulation.network.request import Wishes
from simulation.network.routing import Ints, Places

LINEAR = 0.002  # how far the second time may be from the line, as a share of the way between the other two
LEAST_GAIN = 1.5  # that skipping must promise
LEAST_STEP = 8  # packets between two of the three numbers
TURN_NS = 1


class Instance(NamedTuple):
    """One group's part of a collective, and when its ranks came to it (ns, by rank; those alone that send)."""

    collective: int
    schedule: FlowSchedule
    arrivals: dict[int, int]


class Profile(NamedTuple):
    """By instance the end of each member's part; start and end of all flows, instance after instance (ns); counts.

    `more`: where packets are lost, the bytes of each port beside those of each packet and ACK once.
    """

    ends: list[list[int]]
    start: Ints
    end: Ints
    counted: Counted
    events: int
    more: Ints | int = 0


class Sketch(NamedTuple):
    """The flows of a schedule as packets see them: what they are, their ports, and the members and senders among ranks;
    `sport` are their port numbers where nothing was sent before.

    `kinds` holds a row for each flow: size, what waits for what, gaps. `mask` has a bit for each port. `parents`: see
    `parents_of`.
    """

    schedule: FlowSchedule
    members: list[int]
    senders: list[int]
    source: Ints
    target: Ints
    sport: Ints
    size: Ints
    kinds: Ints
    path: Places
    back: Places
    mask: int
    parents: tuple[Ints, Ints]


class Profiles:
    """Simulates instances that share links together, and remembers what came of them; see Wishes for `draws`."""

    def __init__(
        self, network: Network, collectives: Sequence[GroupCollective], wishes: Wishes, draws: Sequence[int]
    ) -> None:
        self.network, self._wishes = network, wishes._replace(slowness={}, apart=True)
        self._lossy = _mask(np.flatnonzero(network.records["error_rate"] > 0).tolist())
        self._collectives, self._draws = collectives, draws
        self._known: dict[tuple[object, ...], Profile] = {}
        self._sketches: dict[tuple[str, int], Sketch] = {}
        self._digests: dict[tuple[int, ...], str] = {}
        self.events = 0

    def sketch(self, number: int, schedule: FlowSchedule) -> Sketch:
        """The properties of a group's part of collective `number` that matter to packets."""
        key = self._collectives[number].op, id(schedule)
        if key not in self._sketches:
            self._sketches[key] = self._sketched(Instance(number, schedule, {}))
        return self._sketches[key]

    def of(self, instances: Sequence[Instance]) -> Profile:
        """The profiles of instances that contend with one another and with no other."""
        base = min(min(each.arrivals.values()) for each in instances)
        sketches = [self.sketch(each.collective, each.schedule) for each in instances]
        waits = tuple(
            tuple(each.arrivals[rank] - base for rank in sketch.senders)
            for each, sketch in zip(instances, sketches, strict=True)
        )
        key = (self._digest(sketches), waits)
        found = self._known.get(key)
        if found is None:
            moved = [
                each._replace(arrivals={rank: when - base for rank, when in each.arrivals.items()})
                for each in instances
            ]
            if any(sketch.mask & self._lossy for sketch in sketches):
                draws = [self._draws[each.collective] for each in instances]
                found = self._run(moved, sketches, 0, 0, draws)
            else:
                found = self._known[key] = self._profiled(moved, sketches)
            self.events += found.events
        ends = [[base + end for end in each] for each in found.ends]
        return found._replace(ends=ends, start=found.start + base, end=found.end + base)

    def _sketched(self, instance: Instance) -> Sketch:
        sim = prepared(self.network, self._job([instance]), self._wishes)
        find_all_paths(sim)
        flows, ranks = sim.flows, len(sim.ranks)
        ends = np.stack([flows["source"], flows["target"]], axis=1).reshape(-1)
        members = [node for node in dict.fromkeys(ends.tolist()) if node < ranks]
        sending = set(np.flatnonzero(sim.parts[0]["issue_end"] > sim.parts[0]["issue_begin"]).tolist())
        names = ("size", "before", "after", "heir", "gap", "release_gap", "turn", "waiting", "child_begin", "child_end")
        children = np.zeros(len(flows), np.int64)
        np.add.at(children, np.repeat(np.arange(len(flows)), flows["child_end"] - flows["child_begin"]), sim.children)
        mask = _mask(port for port in np.unique(np.concatenate([sim.path, sim.back])).tolist() if port >= 0)
        return Sketch(
            instance.schedule, members, [rank for rank in members if rank in sending], flows["source"], flows["target"],
            flows["sport"], flows["size"], np.stack([*(flows[name] for name in names), children], axis=1), sim.path,
            sim.back, mask, parents_of(sim),
        )  # fmt: skip

    def _digest(self, sketches: Sequence[Sketch]) -> str:
        """Equal for instances whose flows are alike and cross alike ports: numbered in the order of appearance."""
        key = tuple(id(sketch) for sketch in sketches)
        if key not in self._digests:
            ports = np.concatenate([np.concatenate([each.path, each.back], axis=1) for each in sketches]).reshape(-1)
            nodes = np.concatenate([np.stack([each.source, each.target], axis=1) for each in sketches]).reshape(-1)
            crossed, numbers = _renumbered(ports)
            records = self.network.records[crossed[crossed >= 0]]
            _owners, owners = _renumbered(np.stack([records["owner"], records["peer"]], axis=1).reshape(-1))
            what = [np.concatenate([each.kinds for each in sketches]), numbers, _renumbered(nodes)[1], owners]
            what += [records[name] for name in ("bps", "delay", "kmin", "kmax", "shared")]
            content = b"".join(np.ascontiguousarray(each).tobytes() for each in what)
            self._digests[key] = hashlib.sha256(
                content + str([len(each.size) for each in sketches]).encode()
            ).hexdigest()
        return self._digests[key]

    def _profiled(self, instances: Sequence[Instance], sketches: Sequence[Sketch]) -> Profile:
        payload = self.network.conf.payload_bytes
        smallest = min((int(each.size.min()) for each in sketches if len(each.size)), default=0)
        packets = -(-smallest // payload)
        window = self.network.window // payload + 1
        step = max(window // 2, LEAST_STEP, self._beat(sketches))
        spent = 0
        # Those that come at different times do so, however few packets there are: nothing goes on linearly.
        together = len({when for each in instances for when in each.arrivals.values()}) == 1 or len(instances) == 1
        while True:
            counts = [window + step * (turn + 1) for turn in range(3)]
            if sum(counts) * LEAST_GAIN > packets or not together:
                return self._run(instances, sketches, 0, spent)
            found = [self._run(instances, sketches, packets - count, 0) for count in counts]
            spent += sum(each.events for each in found)
            if _is_linear(found):
                return _extended(found, counts, packets, spent)
            step *= 2

    def _beat(self, sketches: Sequence[Sketch]) -> int:
        """Packets until data and the ACKs that share its links meet in the same way again, at most."""
        crossed = np.unique(np.concatenate([np.concatenate([each.path, each.back], axis=1) for each in sketches]))
        ports = self.network.records[crossed[crossed >= 0]]
        ack = ports["ack_time"]
        return int((ports["data_time"] // np.maximum(ack, 1))[ack > 0].max(initial=0))

    def _run(
        self,
        instances: Sequence[Instance],
        sketches: Sequence[Sketch],
        less: int,
        spent: int,
        draws: Sequence[int] = (),
    ) -> Profile:
        """With `less` packets in each flow; `spent` are the events of former tries, `draws` say which are lost."""
        job = self._job(instances)
        run = simulate(self.network, job, self._wishes._replace(draws=draws), less=less)
        ends = [run.part_end[number, sketch.members].tolist() for number, sketch in enumerate(sketches)]
        counted = Counted(*(getattr(run, name) for name in Counted._fields))
        more: Ints | int = 0
        if len(draws):
            ports, payload = len(self.network.ports.bps), self.network.conf.payload_bytes
            ways = [way for each in sketches for way in wire_bytes(each.path, each.back, each.size, payload)]
            more = run.usage.sum(axis=1) - sent_once(ways, ports)
        return Profile(ends, run.start.copy(), run.end.copy(), counted, spent + run.events, more)

    def _job(self, instances: Sequence[Instance]) -> Job:
        """A job in which ranks come to their parts at their times, and wait for nothing."""
        collectives = [self._collectives[each.collective]._replace(schedules=[each.schedule]) for each in instances]
        arriving: dict[int, list[tuple[int, int]]] = {}
        for number, each in enumerate(instances):
            for rank, when in each.arrivals.items():
                arriving.setdefault(rank, []).append((when, number))
        programs: list[list[JobPhase]] = [[]]
        ranks = self.network.fabric.gpus
        program_of = [0] * ranks
        for rank, parts in arriving.items():
            now, phases = 0, []
            for when, number in sorted(parts):
                phases.append(JobPhase(0, 0, max(when - now, 0), number, SENDS))
                now = max(when, now) + TURN_NS
            program_of[rank] = len(programs)
            programs.append(phases)
        return Job([""], programs, program_of, collectives, [JobPart("", 0, ranks, range(1))])


def _mask(ports: Iterable[int]) -> int:
    """A number with a bit for each of some ports."""
    return reduce(lambda mask, port: mask | 1 << port, ports, 0)


def _renumbered(values: Ints | Places) -> tuple[Ints, Ints]:
    """The different values in the order of their first appearance, and the number of each value among them."""
    different, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return different[order].astype(np.int64), place[inverse.reshape(-1)]


def _is_linear(found: Sequence[Profile]) -> bool:
    """Whether the second is in the middle of the other two, and no packet was marked or paused."""
    if any(each.counted.marks or each.counted.pauses for each in found):
        return False
    ends = [float(each.end.max(initial=0)) for each in found]
    means = [float(each.end.mean()) for each in found]
    return all(abs(b - (a + c) / 2) <= LINEAR * (c - a) for a, b, c in (ends, means))


def _extended(found: Sequence[Profile], counts: Sequence[int], packets: int, spent: int) -> Profile:
    """The line through the first and the third, at `packets`."""
    first, _second, third = found
    by = (packets - counts[2]) / (counts[2] - counts[0])

    def at(one: Ints, other: Ints) -> Ints:
        return np.rint(other + (other - one) * by).astype(np.int64)

    ends = [
        at(np.array(a, np.int64), np.array(b, np.int64)).tolist() for a, b in zip(first.ends, third.ends, strict=True)
    ]
    deepest = Counted(deepest_bytes=max(each.counted.deepest_bytes for each in found))
    return Profile(ends, at(first.start, third.start), at(first.end, third.end), deepest, spent)
