"""Simulates a job at flow level: one of all hops and ranks that are alike, for whole iterations or one collective."""

import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from common.progress import StepProgress
from simulation.network.flow_level import fluid
from simulation.network.flow_level.fluid_state import PLANNED, FluidCode
from simulation.network.flow_level.lanes import CostModel
from simulation.network.flow_level.many_steps import in_fewer_steps
from simulation.network.flow_level.net import HopNet, Laid, all_different, check_ways, laid_out
from simulation.network.flow_level.port_routes import FIRST_SPORT, PortRoutes
from simulation.network.flow_level.quotient import (
    NOBODY,
    AlikeLanes,
    Builder,
    Built,
    Classes,
    FlowLanes,
    repeated_pairs,
)
from simulation.network.flow_level.steady import undisturbed
from simulation.network.flow_level.turn_taking import lateness
from simulation.network.flow_level.twins import alike
from simulation.network.flow_level.work import NOT_YET, Work
from simulation.network.job import Job
from simulation.network.looks import Looks
from simulation.network.tables import RankTimes
from simulation.network.turns import teams_of

MOST_IN_LISTS = 20_000  # flows that plain Python moves sooner than they are worth compiling for
FEW = 1000  # flows that plain Python moves sooner than compiled code is loaded
MOST_LOADS_IN_LISTS = 500_000  # links that they load in all, of which --routing spread has many
MOST_ALONE_IN_LISTS = 500  # where each takes a way of its own
ALIKE_BYTES, ALONE_BYTES = 250, 2700  # of memory that a simulated flow takes, measured; where it has a way of its own
SAME_NS = 1.0  # times that differ by less are the same
MOST_LINES = 1 << 20  # flows of which each one's times are kept, and written


class FlowGroup(NamedTuple):
    """All flows of a hop of collective `number`: of what `kind` it is, and the port number of the first and every next.

    Port numbers count the flows of a pair in the order of their steps.
    """

    number: int
    kind: int
    source: int
    target: int
    size: int
    sport: int
    stride: int


class CollapseCheck(NamedTuple):
    """The flows of the small cases, how many of them stood for all, and by how much a time differs at most (ns)."""

    flows: int
    simulated: int
    farthest_ns: float

    @property
    def agrees(self) -> bool:
        """Whether all flows took the time of those that stood for them."""
        return self.farthest_ns < SAME_NS


class FlowRun:
    """The result of a simulation at flow level; times are ns.

    `simulated` is the number of flows that stand for all; `collide` says whether each takes a way of its own by ECMP,
    `best_case` whether it should; `laid` are the hops on their ways, unless each flow has one of its own. `steps` are
    the simulated steps of a ring and all of them, if time goes on linearly after the former. `check` is that of a small
    case.
    """

    def __init__(
        self,
        classes: Classes,
        work: Work,
        known: Mapping[tuple[int, int], Built],
        laid: Sequence[Laid] | None,
        seconds: float,
    ) -> None:
        self.classes, self.work, self.known, self.laid, self.seconds = classes, work, known, laid, seconds
        self.job, self.best_case = classes.net.job, False
        self.steps: tuple[int, int] | None = None
        self.check: CollapseCheck | None = None
        self.simulated = sum(len(built.state.flow_hop) for built in (work.built, *known.values()))
        self.collide = len(work.built.state.flow_lane) > 0
        ranks = classes.likeness.ranks
        self.finished = [round(work.workers[kind].ended) for kind in ranks]

    @property
    def complete(self) -> bool:
        """Whether every rank came to its end."""
        return min(self.finished, default=0) >= 0

    @property
    def flows(self) -> int:
        """The number of flows of all collectives."""
        return self.classes.net.flows

    def groups(self) -> Iterator[FlowGroup]:
        """The flows, hop by hop, in the order in which the collectives begin."""
        net, of_hop = self.classes.net, self.classes.likeness.hops
        sent: dict[tuple[int, int], int] = {}
        strides = [repeated_pairs(net.hops_of_key(key)) for key in net.keys]
        for number, key in enumerate(net.key_of):
            before: dict[tuple[int, int], int] = {}
            its, hops = net.of_key(key), net.hops_of_key(key)
            stride = strides[key]
            for place, hop in zip(its, hops, strict=True):
                pair = hop[:2]
                sport, step = FIRST_SPORT + sent.get(pair, 0), stride.get(pair, 1)
                if step > 1:
                    sport += before.setdefault(pair, 0)
                    before[pair] += 1
                yield FlowGroup(number, of_hop[place], *pair, hop.size, sport, step)
            if number + 1 < len(net.key_of):
                for hop in hops:
                    sent[hop[:2]] = sent.get(hop[:2], 0) + hop.steps

    def times(self, number: int, colour: int) -> tuple[Sequence[float], Sequence[float]]:
        """Starts and ends of the flows of a kind of hops in one collective."""
        built, shift = self.work.built, 0.0
        if colour not in built.hops.get(number, ()):
            kind = self.classes.kind(self.classes.hop(colour).source)
            if kind < 0:
                kind = self.classes.kind(self.classes.hop(colour).target)
            where = self.classes.net.key_of[number], kind
            if (number, kind) not in self.work.begins or where not in self.known:
                none = [NOT_YET] * self.classes.hop(colour).steps
                return none, none
            shift = self.work.begins[number, kind]
            built, number = self.known[where], 0
        place = built.hops[number][colour]
        first, steps = built.state.hop_begin[place], built.state.hop_steps[place]
        if steps == 1:
            return [built.state.start[first] + shift], [built.state.end[first] + shift]
        part = slice(int(first), int(first) + int(steps))
        starts, ends = built.state.start[part], built.state.end[part]
        if not isinstance(starts, list):
            starts, ends = starts.tolist(), ends.tolist()
        return (starts, ends) if not shift else ([each + shift for each in starts], [each + shift for each in ends])

    def of_rank(self, rank: int) -> RankTimes:
        """The times of one rank; see RankTimes."""
        begins, ends = self.parts_of(rank)
        moved = {}
        for number, collective in enumerate(self.job.collectives):
            if collective.kind == "PP" and ends[number] >= 0:
                moved[number] = self._moved(number, rank)
        worker = self.work.workers[self.kind_of(rank)]
        return RankTimes(begins, ends, moved, round(worker.walked), round(worker.ended))

    def parts_of(self, rank: int) -> tuple[list[int], list[int]]:
        """By collective: when a rank came to its part and when that ended (ns, -1: not yet)."""
        kind, numbers = self.kind_of(rank), range(len(self.job.collectives))
        begins, ends = (
            [round(of.get((number, kind), -1)) for number in numbers] for of in (self.work.begins, self.work.ends)
        )
        return begins, ends

    def kind_of(self, rank: int) -> int:
        """The kind of a rank: those of one kind do the same at the same time."""
        return self.classes.likeness.ranks[rank]

    def _moved(self, number: int, rank: int) -> int:
        """How long the transfer took that a rank received."""
        net = self.classes.net
        for place in net.of_key(net.key_of[number]):
            if net.hops[place].target == rank:
                starts, ends = self.times(number, self.classes.likeness.hops[place])
                return round(ends[0] - starts[0])
        return 0

    def rank_ends(self) -> list[float]:
        """The end of the last flow of each rank that has flows."""
        net, by_kind = self.classes.net, dict[int, float]()
        parts = {(net.key_of[number], kind) for number, kind in self.work.built.parts} | set(self.known)
        for (number, kind), end in reversed(self.work.ends.items()):  # the latest first
            if end > by_kind.get(kind, -1.0) and (net.key_of[number], kind) in parts:
                by_kind[kind] = end
        return [by_kind[kind] for kind in self.classes.likeness.ranks if kind in by_kind]

    def first_start(self) -> float:
        """The start of the first flow."""
        every = [self.work.built.state.start] if self.collide else []
        least = every or [self.times(number, colour)[0] for number, colour in self._firsts()]
        return min((float(start) for each in least for start in each if start >= 0), default=0.0)

    def _firsts(self) -> Iterator[tuple[int, int]]:
        net = self.classes.net
        first: dict[int, int] = {}
        for number, key in enumerate(net.key_of):
            first.setdefault(key, number)
        return ((number, colour) for key, number in first.items() for colour in self.classes.hops_of_key[key])


class FlowWishes(NamedTuple):
    """How to simulate: ns before each send, bytes of a packet and a window, slow ranks, nothing alike (`apart`), and
    how many flows at most may each take a way of its own (None: as many as memory has room for).
    """

    latency_ns: int
    payload: int
    window: int
    slowness: Mapping[int, float]
    apart: bool = False
    most_ways: int | None = None


class TooManyWaysError(Exception):
    """More flows than `most_ways` would each take a way of its own."""


def simulate(
    ways: PortRoutes, job: Job, wishes: FlowWishes, place: str = "", finished: Callable[[FlowRun], None] | None = None
) -> FlowRun:
    """Run a job; `place` names the network in messages, `finished` sees now and then, and at Ctrl-C, what is there.

    Raises:
        InputProblems: a GPU does not reach one that it sends to, or there is too little memory.
        TooManyWaysError: by ECMP more flows than the wishes allow take a way of their own.
    """
    began = time.perf_counter()
    net = HopNet(job, wishes.latency_ns, place)
    check_ways({hop[:2] for hop in net.hops}, ways, place)
    model = CostModel(ways, wishes.payload, wishes.window)
    laid = laid_out(net, ways, model)
    if laid is None and wishes.most_ways is not None and net.flows > wishes.most_ways:
        raise TooManyWaysError
    classes = _classes(net, laid, ways, job, wishes)
    lanes = None if laid is None else AlikeLanes(classes, laid, wishes.window)
    alone = Undisturbed(lanes, undisturbed(classes, laid) if laid and not wishes.apart else (), wishes.latency_ns)

    def found(of: Classes, work: Work) -> FlowRun:
        kept = laid if net.flows <= MOST_LINES else None
        return FlowRun(of, work, alone.found, kept, time.perf_counter() - began)

    def worked(of: Classes) -> Work:
        built, module = _built(of, lanes, model, alone.where)
        work = Work(built, module, job.collectives, wishes.latency_ns, alone.took)
        teams = teams_of(job, of.likeness.ranks)
        for kind, rank in of.first_rank.items():
            work.add(kind, job.phases(rank), wishes.slowness.get(rank, 1.0), teams[rank])
        _go(work, built, alone, (lambda: finished(found(of, work))) if finished and of is classes else lambda: None)
        return work

    fewer = None
    if lanes and len(job.collectives) == 1 and not alone.where and net.flows > MOST_LINES:
        fewer = in_fewer_steps(classes, worked)
    if fewer is None:
        return found(classes, worked(classes))
    run = found(classes, fewer[0])
    run.steps = fewer[1:]
    return run


def _classes(net: HopNet, laid: Sequence[Laid] | None, ways: PortRoutes, job: Job, wishes: FlowWishes) -> Classes:
    """The flows that are alike, or each its own where it takes a way of its own or the wishes say so."""
    late = lateness(net, ways, wishes.payload)
    if laid is None or wishes.apart:
        return Classes(net, all_different(net, job.ranks, laid or ()), late)
    return Classes(net, alike(net, laid, ways, _rank_kinds(job, wishes.slowness)), late)


def _rank_kinds(job: Job, slowness: Mapping[int, float]) -> list[Hashable]:
    return [(program, slowness.get(rank, 1.0)) for rank, program in enumerate(job.program_of)]


def _go(work: Work, built: Built, alone: "Undisturbed", look: Callable[[], None]) -> None:
    total = len(built.state.flow_hop)
    with StepProgress("flows", total) as progress, Looks(look) as looks:
        done = 0

        def tell() -> None:
            nonlocal done
            now = int(built.state.counts[PLANNED]) // 2
            progress.advance(now - done)
            done = now
            looks.now_and_then()

        alone.tell = tell
        work.run(tell)
        alone.tell = _silent  # else all of this would be a cycle, which only the collector of garbage frees


def _silent() -> None:
    pass


def _built(
    classes: Classes,
    alike_lanes: AlikeLanes | None,
    model: CostModel,
    known: Collection[tuple[int, int]],
) -> tuple[Built, FluidCode]:
    """The state of all but what is known of its own, by collective and kind of rank, and the code that moves it."""
    net, builder = classes.net, Builder(classes)
    lanes = FlowLanes(builder, model) if alike_lanes is None else None
    lane_of = alike_lanes.of(builder) if alike_lanes is not None else _no_lane
    colours_of_key = _unknown(classes, known)
    flows = [sum(classes.hop(colour).steps for colour in colours) for colours in colours_of_key]
    net.room.take(sum(flows[key] for key in net.key_of), ALONE_BYTES if lanes else ALIKE_BYTES, "flows")
    for number, key in enumerate(net.key_of):
        builder.add(number, lane_of, colours_of_key[key])
        if lanes:
            lanes.add(colours_of_key[key])
    if lanes:
        lanes.finish(at_once=sum(builder.columns.steps) > MOST_ALONE_IN_LISTS and find_spec("numpy") is not None)
    return _ready(builder, MOST_IN_LISTS if lanes is None else MOST_ALONE_IN_LISTS)


def _unknown(classes: Classes, known: Collection[tuple[int, int]]) -> list[list[int]]:
    """The colours of each collective's hops without those of what is known by collective and kind of rank."""
    return [
        [each for each in colours if not known or (key, min(classes.kinds_at(each), default=NOBODY)) not in known]
        for key, colours in enumerate(classes.hops_of_key)
    ]


def _no_lane(_colour: int) -> int:
    return 0


def _ready(builder: Builder, most: int) -> tuple[Built, FluidCode]:
    """The state before the first event: in lists for plain Python, for many flows in arrays for compiled code."""
    flows = sum(builder.columns.steps)
    if flows > min(FEW, most):
        try:
            from simulation.network.flow_level import compiled as code

            if flows > most or _loads(builder) > MOST_LOADS_IN_LISTS or code.is_compiled():
                move = code.compiled()
                built = builder.built(code.filled)
                issued = {where: code.whole(hops) for where, hops in built.issued.items()}
                built = built._replace(state=code.in_arrays(built.state), issued=issued)
                return built, code.CompiledFluid(built.state, move)
        except ImportError as error:
            if error.name not in ("numba", "llvmlite", "numpy"):
                raise
    return builder.built(lambda value, count: [value] * count), fluid


def _loads(builder: Builder) -> int:
    """How many links all flows that share lanes load, each counted for each flow."""
    columns, begin = builder.columns, builder.book.lanes.load_begin
    if len(builder.flow_lane):
        return 0
    its = zip(columns.steps, columns.lane, strict=True)
    return sum(steps * (begin[lane + 1] - begin[lane]) for steps, lane in its)


class Undisturbed:
    """Collectives that nothing else can change, by collective and kind of rank: `found` are those that ranks came to.

    Each is simulated when a rank first comes to it, so that the rows before it have their times by then.
    """

    def __init__(self, lanes: AlikeLanes | None, where: Collection[tuple[int, int]], latency_ns: int) -> None:
        self._lanes, self._latency_ns = lanes, latency_ns
        self.where = frozenset(where if lanes else ())
        self.found: dict[tuple[int, int], Built] = {}
        self._took: dict[tuple[int, int], float] = {}
        self.tell: Callable[[], None] = _silent

    def took(self, number: int, kind: int) -> float | None:
        """The time of collective `number` of the job (ns); None if others can disturb it."""
        if self._lanes is None or not self.where:
            return None
        where = self._lanes.classes.net.key_of[number], kind
        took = self._took.get(where)
        if took is None and where in self.where:
            self.found[where], ends = _alone(self._lanes, *where, self._latency_ns)
            took = self._took[where] = max(*self.found[where].state.end, *ends.values())
            self.tell()
        return took


def _alone(lanes: AlikeLanes, key: int, kind: int, latency_ns: int) -> tuple[Built, dict[tuple[int, int], float]]:
    """One collective on its own, from the moment at which its ranks come to it, and the ends of their parts (ns)."""
    classes = lanes.classes
    builder = Builder(classes)
    colours = [each for each in classes.hops_of_key[key] if kind in classes.kinds_at(each)]
    builder.add(0, lanes.of(builder), colours)
    built, module = _ready(builder, MOST_IN_LISTS)
    work = Work(built, module, [], latency_ns, lambda *_: None)
    work.issue(0, kind, 0.0)
    work.run(lambda: None)
    return built, work.ends
