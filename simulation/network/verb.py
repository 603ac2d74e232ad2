"""Carries out `python -m simulation network`: simulates what is asked for, writes the files, says how sure it is."""

import argparse
from pathlib import Path

from common.errors import MistakeList
from common.summary import JsonValue, Summary, counted
from common.whole_files import write_whole
from simulation.network.answer import Sureness, summary
from simulation.network.engine import EngineCall, EngineRun, check_engine, environment_of, run_engine, simulator_words
from simulation.network.fast_forward import FastForward, OverlapsError
from simulation.network.flow_file import FlowFile
from simulation.network.flow_level.net import check_ways
from simulation.network.flow_level.port_routes import ECMP
from simulation.network.job import warn_of_untimed
from simulation.network.memory_room import MemoryRoom
from simulation.network.outcome import NetworkRun
from simulation.network.packet_view import view_of
from simulation.network.packets import Network, network_of, simulate
from simulation.network.page import html
from simulation.network.request import NetworkRequest, read_request
from simulation.network.row_files import FLOWS, LINKS, PAGE, RowFiles
from simulation.network.trace import write_trace
from simulation.network.view import RunView

FLOW_BYTES = 1000  # of memory that a flow takes, measured
NEXT_HOP_BYTES = 16  # of memory that those of a node towards another take, without the ports themselves
GIVEN_UP = "--fast-forward was given up: parts overlap so much that all packets were simulated"
PROBES = 2  # shuffled orders of starts that say whether there is a band


def checked(arguments: argparse.Namespace) -> NetworkRequest:
    """The request that options and files make.

    Raises:
        InputProblems: mistakes of options and files.
    """
    mistakes = MistakeList()
    if arguments.routing not in (None, ECMP):
        mistakes.add("--routing", arguments.routing, f"is for --level flow: packets take their ways by {ECMP}")
    if arguments.engine:
        check_engine(arguments.simulator, arguments.conf, mistakes)
    return read_request(arguments, mistakes)


def simulated(arguments: argparse.Namespace) -> Summary:
    """Simulate what the options ask for, write the files, and say how sure the result is."""
    request = checked(arguments)
    _check_memory(request)
    call = _engine_call(arguments, request) if arguments.engine else None
    network = _network(request)
    healthy = None
    if request.faults:
        healthy = _run(request, network)
        request = request.with_faults(request.faults)
        network = _network(request)
    theirs = run_engine(call) if call else None
    found, view, files = _written(request, network, arguments.trace)
    request.notes.extend(warn_of_untimed(request.job, found.finished.tolist()) if arguments.workload else ())
    others = _others(request, network) if found.complete else []
    page = Path(request.prefix + PAGE)
    ended = [each for each in others if each is not None]
    sure = Sureness(sorted([found.makespan_us, *ended]), request.seeds, len(others) - len(ended))
    answer = summary(request, found, sure, [*files, page])
    if healthy and found.complete:
        from simulation.network.measured import with_cost  # which needs pydantic

        answer = with_cost(answer, healthy.iteration_us, found.iteration_us)
    answer = _beside(answer, found, theirs) if theirs else answer
    write_whole(page, [html(request, view, sure.makespans, answer.text).encode()])
    return answer


def _check_memory(request: NetworkRequest) -> None:
    """There is room for a record of each flow; --fast-forward keeps none of many."""
    if request.fast_forward:
        return
    schedules = [schedule for collective in request.job.collectives for schedule in collective.schedules]
    room = MemoryRoom(str(request.topology), "fewer GPUs or rows take less; --level flow simulates equal flows once")
    room.take(sum(schedule.flow_count for schedule in schedules), FLOW_BYTES, "flows")


def _network(request: NetworkRequest) -> Network:
    room = MemoryRoom(str(request.topology), "a smaller network takes less; --level flow keeps no table of next hops")
    room.take(len(request.fabric.roles) ** 2, NEXT_HOP_BYTES, "next hops")
    network = network_of(request.fabric, request.wishes.conf)
    _check_routes(request, network)
    return network


class _Growing:
    """The rows and flows of a run, written as they end."""

    def __init__(self, request: NetworkRequest, network: Network, rows: RowFiles) -> None:
        self.rows, self.flows = rows, FlowFile(Path(request.prefix + FLOWS), network)

    def write(self, run: NetworkRun) -> None:
        """Write what has ended; before a flow or a row has, the files of a run before stay."""
        some = bool((run.end >= 0).any())
        self.rows.write(run, anyway=some)
        if some:
            self.flows.write(run)

    def end(self, run: NetworkRun) -> list[Path]:
        """Write the rest; returns the files."""
        self.rows.write(run, anyway=True)
        self.flows.write(run)
        self.flows.close()
        if run.not_kept:
            self.flows.path.unlink()
        return [*([] if run.not_kept else [self.flows.path]), *self.rows.paths]


def _written(request: NetworkRequest, network: Network, trace: Path | None) -> tuple[NetworkRun, RunView, list[Path]]:
    """The run, what is shown of it, and the files that it left."""
    with RowFiles(request.job, request.prefix, request.wishes.slowness) as rows:
        growing = _Growing(request, network, rows)
        found = _run(request, network, growing)
        files = growing.end(found)
    view, busy = view_of(request, found), Path(request.prefix + LINKS)
    if not found.not_kept:
        write_whole(busy, (line.encode() for line in view.links.table()))
        files.append(busy)
    if trace:
        write_trace(trace, request, view)
        files.append(trace)
    return found, view, files


def _others(request: NetworkRequest, network: Network) -> list[float | None]:
    """The makespans (us) of shuffled orders: of `--seeds`, else of the probes; None of one that did not complete."""
    if request.wishes.seed:
        return []
    seeds = range(1, 1 + (request.seeds or PROBES))
    orders = (request._replace(wishes=request.wishes._replace(seed=seed)) for seed in seeds)
    runs = (_run(order, network) for order in orders)
    return [run.makespan_us if run.complete else None for run in runs]


def _run(request: NetworkRequest, network: Network, growing: _Growing | None = None) -> NetworkRun:
    write = growing.write if growing else None
    if not request.fast_forward or GIVEN_UP in request.notes:
        return simulate(network, request.job, request.wishes, write)
    try:
        forward = FastForward(network, request.job, request.wishes)
        if not growing:
            return forward.run()
        return forward.with_use(forward.run(growing.rows.write))
    except OverlapsError:
        _check_memory(request._replace(fast_forward=False))
        request.notes.append(GIVEN_UP)  # which holds for the runs that follow, too
        if growing:
            growing.rows.begin_again()
        return simulate(network, request.job, request.wishes, write)


def _engine_call(arguments: argparse.Namespace, request: NetworkRequest) -> EngineCall:
    nvls = arguments.algorithm == "nvls"
    environment = environment_of(arguments.send_lat, nvls=nvls, pxn=arguments.pxn)
    words = simulator_words(arguments.simulator)
    return EngineCall(words, Path(arguments.workload[0]), request.topology, arguments.conf, environment)


def _beside(answer: Summary, found: NetworkRun, theirs: EngineRun) -> Summary:
    """The summary with SimAI's figures beside ours, if flows were kept; it failed where SimAI's table is empty, too."""
    ends = found.rank_ends - found.first_start
    rows: list[tuple[str, float, float]] = []
    if len(ends):
        rows = [
            ("makespan", theirs.makespan_us, found.makespan_us),
            ("mean over ranks", theirs.mean_us, float(ends.mean()) / 1000),
            ("rank 0", theirs.rank_0_us, float(ends[0]) / 1000),
        ]
    flows = len(found.end) + found.not_kept
    lines = [f"SimAI_simulator: {counted(theirs.flows, 'flow')} in {theirs.seconds:.2f} s, ours {flows}"]
    if theirs.total_us is None:
        lines.append("SimAI_simulator did not complete: the table that it wrote has no total time")
    else:
        rows.append(("iteration of rank 0", theirs.total_us, float(found.finished[0]) / 1000))
    lines += [
        f"{name}: SimAI {its:.3f} us, ours {own:.3f} us ({100 * (own / its - 1) if its else 0:+.2f} %)"
        for name, its, own in rows
    ]
    data: dict[str, JsonValue] = {**answer.data, "simai": {**theirs._asdict(), "complete": theirs.complete}}
    return Summary("\n".join([answer.text, *lines]), data, failed=answer.failed or not theirs.complete)


def _check_routes(request: NetworkRequest, network: Network) -> None:
    """Every flow has a way."""
    schedules = {id(each): each for collective in request.job.collectives for each in collective.schedules}
    ends = {
        (train.source, target)
        for schedule in schedules.values()
        for source in schedule.sources
        for train in schedule.trains(source)
        for target in ((train.targets,) if isinstance(train.targets, int) else train.targets)
    }
    check_ways(ends, network.ways, str(request.topology))
