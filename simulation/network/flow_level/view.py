"""Makes what page, trace and links.csv show of a run at flow level."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from simulation.network.critical import FlowFacts, PortUsers, critical_path
from simulation.network.flow_level.simulate import FlowRun
from simulation.network.view import LinkUse, RunView, Transfer

OneFlow = tuple[int, int, int]  # the number of a collective, a hop, a step


def view_of(run: FlowRun, links: LinkUse | None) -> RunView:
    """The view of a run; without `links` of its ranks alone."""
    flows = FairFlows(run)
    end = round(max(1.0, *run.finished, *run.work.ends.values()))
    if links is None:
        return RunView(run, end, flows.transfers)
    count, path = critical_path(run.job, flows)
    return RunView(run, end, flows.transfers, links, flows.durations(), path, count)


class FairFlows:
    """The flows of a run, each as a step of a hop of a collective; see FlowGraph."""

    def __init__(self, run: FlowRun) -> None:
        self._run, self._net = run, run.classes.net
        self._of_hop, self._state = run.classes.likeness.hops, run.work.built.state
        self._known: dict[tuple[int, int], tuple[Sequence[float], Sequence[float]]] = {}

    def _times(self, number: int, hop: int) -> tuple[Sequence[float], Sequence[float]]:
        where = number, self._of_hop[hop]
        if where not in self._known:
            self._known[where] = self._run.times(*where)
        return self._known[where]

    def durations(self) -> list[float]:
        """How long each flow took that ended (ns), sorted."""
        if self._run.collide:
            times = zip(listed(self._state.start), listed(self._state.end), strict=True)
            return sorted(end - start for start, end in times if end >= 0)
        found = Counter[float]()
        firsts = self._run.classes.first_hop
        counts = [Counter(self._of_hop[hop] for hop in self._net.of_key(key)) for key in self._net.keys]
        for number, key in enumerate(self._net.key_of):
            for colour, count in counts[key].items():
                for start, end in zip(*self._times(number, firsts[colour]), strict=True):
                    if end >= 0:
                        found[end - start] += count
        ordered = list[float]()
        for took in sorted(found):
            ordered += [took] * found[took]
        return ordered

    def transfers(self) -> Iterator[Transfer]:
        """The flows between stages of a pipeline."""
        begins, kind_of = self._run.work.begins, self._run.classes.kind
        for number, collective in enumerate(self._run.job.collectives):
            for place in self._net.of_key(self._net.key_of[number]) if collective.kind == "PP" else ():
                hop, (_starts, ends) = self._net.hops[place], self._times(number, place)
                came = [round(begins.get((number, kind_of(rank)), -1)) for rank in (hop.source, hop.target)]
                if ends[-1] >= 0:
                    yield Transfer(hop.source, hop.target, came[0], came[1], round(ends[-1]))

    def last(self) -> OneFlow | None:
        """The flow that ended last."""
        ended = sorted(((end, where) for where, end in self._run.work.ends.items()), reverse=True)
        found = (self.last_of(number, self._run.classes.first_rank[kind]) for _end, (number, kind) in ended)
        return next((each for each in found if each), None)

    def last_of(self, collective: int, rank: int) -> OneFlow | None:
        """The flow of a rank's part of a collective that ended last."""
        hops = self._net.hops
        its = (hop for hop in self._net.of_key(self._net.key_of[collective]) if rank in hops[hop][:2])
        ends = ((max((end, step) for step, end in enumerate(self._times(collective, hop)[1])), hop) for hop in its)
        (end, step), hop = max(ends, key=lambda each: each[0][0], default=((-1.0, 0), 0))
        return (collective, hop, step) if end >= 0 else None

    def parents(self, flow: OneFlow) -> list[OneFlow]:
        """The flows of the same collective that it waited for."""
        number, hop, step = flow
        hops = self._net.hops
        return [
            (number, hop + behind, step - shift)
            for behind, shift in hops[hop].parents
            if 0 <= step - shift < hops[hop + behind].steps
        ]

    def facts(self, flow: OneFlow) -> FlowFacts:
        """The ends of a flow and its time (ns)."""
        number, hop, step = flow
        starts, ends = self._times(number, hop)
        return FlowFacts(*self._net.hops[hop][:2], number, round(starts[step]), round(ends[step]))

    def ports(self, flow: OneFlow) -> Sequence[int]:
        """The ports on its way that may hold it up."""
        number, hop, step = flow
        if self._run.laid is not None:
            return self._run.laid[hop].forward
        state, built = self._state, self._run.work.built
        lane = state.flow_lane[state.hop_begin[built.hops[number][self._of_hop[hop]]] + step]
        return [built.ports[link] for link in state.load_link[state.load_begin[lane] : state.data_end[lane]]]

    def users(self, ports: Collection[int]) -> dict[int, PortUsers]:
        """The flows of each of these ports."""
        found = {port: PortUsers([], [], [], []) for port in ports}
        if self._run.laid is None:
            self._add_each(found)
            return found
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for number, key in enumerate(self._net.key_of):
            numbers[key].append(number)
        for key in self._net.keys:
            hops = Counter[tuple[int, int, float]]()  # by port, kind and ns that the port takes
            for hop in self._net.of_key(key):
                its, size = self._run.laid[hop], self._net.hops[hop].size
                for port, cost in zip(its.forward, its.costs.forward, strict=True):
                    if port in found:
                        hops[port, self._of_hop[hop], cost * size] += 1
            for number in numbers[key]:
                for (port, colour, busy), count in hops.items():
                    times = zip(*self._times(number, self._run.classes.first_hop[colour]), strict=True)
                    for start, end in times:
                        _add(found[port], start, end, busy, count)
        return found

    def _add_each(self, found: dict[int, PortUsers]) -> None:
        """The flows of ports, where each flow has a lane of its own."""
        state, numbers = self._state, self._run.work.built.ports
        links = {link: port for link, port in enumerate(numbers) if port in found}
        begins, loads = listed(state.load_begin), dict[int, list[tuple[int, float]]]()
        for place, link in enumerate(listed(state.load_link)):
            if link in links:
                lane = bisect_right(begins, place) - 1
                if place < state.data_end[lane]:  # ACKs are behind it
                    loads.setdefault(lane, []).append((links[link], state.load_cost[place]))
        for flow, lane in enumerate(listed(state.flow_lane)):
            for port, cost in loads.get(lane, ()):
                busy = float(cost * state.hop_size[state.flow_hop[flow]])
                _add(found[port], float(state.start[flow]), float(state.end[flow]), busy)


def _add(users: PortUsers, start: float, end: float, busy: float, count: int = 1) -> None:
    if end >= 0:
        users.begins.append(round(start))
        users.ends.append(round(end))
        users.busy.append(busy)
        users.counts.append(count)


def listed(column: Any) -> list[Any]:
    """A column of a state as a list."""
    return column if isinstance(column, list) else column.tolist()
