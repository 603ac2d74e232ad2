"""Carries out `python -m simulation network --level flow`: simulates, writes the files, says how far to trust it."""

import argparse
from collections.abc import Callable, Sequence
from math import fsum
from pathlib import Path

from common.errors import MistakeList
from common.summary import JsonValue, Summary, counted
from common.whole_files import write_whole
from simulation.network.flow_level.files import LinkLoads, write_flows
from simulation.network.flow_level.port_routes import ECMP, RAIL, PortRoutes
from simulation.network.flow_level.simulate import MOST_LINES, FlowRun, FlowWishes, TooManyWaysError, simulate
from simulation.network.flow_level.small_case import check_collapsing
from simulation.network.flow_level.trust import (
    COLLISIONS,
    DRIFT,
    LONGER_PERCENT,
    LOSSES,
    MARKS,
    PAUSES,
    QUEUES,
    SHORT,
    SHORTER_PERCENT,
    WINDOWS,
    Queue,
    counts,
    judged,
    loses,
)
from simulation.network.flow_level.view import view_of
from simulation.network.flow_level.window import window_bytes
from simulation.network.job import iterations, warn_of_untimed
from simulation.network.page import html
from simulation.network.request import NetworkRequest, read_request
from simulation.network.row_files import FLOWS, LINKS, PAGE, RowFiles
from simulation.network.trace import write_trace
from simulation.network.view import RunView
from simulation.topology.fabric import Fabric, names, port_names, tiers

BUSIEST_SHOWN = 3
LOSSY = "links have an error rate, but no packet is lost here"
NO_LIMIT = "how much longer it takes to send lost packets again is not known here, --level packet tells"
SAMPLE = (
    "of such runs, recorded of ns-3 or on random networks by packets, the worst makespan was {longer} % longer "
    "and another one {shorter} % shorter, which is no limit for others"
)
DOUBTS = {
    PAUSES: "not to be trusted: links are so long, or queues, that PFC pauses senders, which --level packet follows",
    LOSSES: f"not to be trusted: {LOSSY}",
    SHORT: "only roughly right: flows or windows of few packets, whose turns move times",
    COLLISIONS: "only roughly right: flows, or the steps of a ring, take ways of their own, and some collide",
    DRIFT: "only roughly right: hops of several speeds let rings drift apart; --level packet gives the band",
    QUEUES: "only roughly right: ACKs, or whole flows, stand in queues, so that rates are not fair",
    WINDOWS: "only roughly right: windows hold flows back while their ACKs wait behind packets",
}
PACKETS_ONLY = ("seed", "seeds", "outage", "fast_forward", "engine", "simulator")


def checked(arguments: argparse.Namespace) -> NetworkRequest:
    """The request that options and files make.

    Raises:
        InputProblems: mistakes of options and files.
    """
    mistakes = MistakeList()
    for name in PACKETS_ONLY:
        if getattr(arguments, name):
            mistakes.add(f"--{name.replace('_', '-')}", None, "is for --level packet")
    return read_request(arguments, mistakes, packets=False)


def simulated(arguments: argparse.Namespace) -> Summary:
    """Simulate what the options ask for, write the files, and say how far the result can be trusted."""
    request, routing = checked(arguments), arguments.routing
    healthy = None
    if request.faults:
        healthy, _ways = _run(request, routing)
        request = request.with_faults(request.faults)
    with RowFiles(request.job, request.prefix, request.wishes.slowness) as rows:
        run, ways = _run(request, routing, rows.write)
        rows.write(run, anyway=True)
    request.notes.extend(warn_of_untimed(request.job, run.finished) if arguments.workload else ())
    page, loads = Path(request.prefix + PAGE), _loads(run, ways, request.wishes.conf.payload_bytes)
    view = view_of(run, loads.use(port_names(request.fabric)) if loads else None)
    files = [*_written(request, run, ways, view, arguments.trace), *rows.paths, page]
    answer = _summary(request, run, ways, loads, files)
    if healthy and healthy.complete and run.complete:
        from simulation.network.measured import with_cost  # which needs pydantic

        answer = with_cost(answer, max(healthy.finished) / 1000, max(run.finished) / 1000)
    write_whole(page, [html(request, view, [], answer.text).encode()])
    return answer


def _run(
    request: NetworkRequest, routing: str | None, finished: Callable[[FlowRun], None] | None = None
) -> tuple[FlowRun, PortRoutes]:
    """The run, and the ways of its flows: those of ECMP, unless another routing was asked for or they are too many."""
    ways = PortRoutes(request.fabric, routing or ECMP)
    wishes = flow_wishes(request, ways)
    if routing:
        return _checked(request, ways, wishes, finished), ways
    try:
        return _checked(request, ways, wishes._replace(most_ways=MOST_LINES), finished), ways
    except TooManyWaysError:
        ways = PortRoutes(request.fabric, RAIL)
        run = _checked(request, ways, wishes, finished)
        run.best_case = True
        note = (
            f"by ecmp {run.flows:,} flows would each take a way of its own, which is done for {MOST_LINES:,} at most: "
            "they take those of --routing rail"
        )
        request.notes.extend([note] if note not in request.notes else [])  # with --what-if there are two runs
        return run, ways


def _checked(
    request: NetworkRequest, ways: PortRoutes, wishes: FlowWishes, finished: Callable[[FlowRun], None] | None
) -> FlowRun:
    """The run in which what is alike is simulated once, or each flow if a small case says that this is not exact."""
    check = check_collapsing(request.job, ways, wishes, request.make)
    if check and not check.agrees:
        wishes = wishes._replace(apart=True)
    run = simulate(ways, request.job, wishes, str(request.topology), finished)
    run.check = check if run.simulated < run.flows or wishes.apart else None
    return run


def flow_wishes(request: NetworkRequest, ways: PortRoutes) -> FlowWishes:
    """The wishes of a request that the flow level follows."""
    wishes, payload = request.wishes, request.wishes.conf.payload_bytes
    window, _rtt = window_bytes(ways, request.fabric.gpus, payload, some=True)
    return FlowWishes(wishes.latency_ns, payload, window, wishes.slowness)


def _loads(run: FlowRun, ways: PortRoutes, payload: int) -> LinkLoads | None:
    """How busy each link was; None of more flows than are told one by one."""
    if run.flows > MOST_LINES:
        return None
    first = run.first_start()
    return LinkLoads(run, ways, first, max(run.rank_ends(), default=first), payload)


def _written(request: NetworkRequest, run: FlowRun, ways: PortRoutes, view: RunView, trace: Path | None) -> list[Path]:
    """The files that are written after a run, but for the page."""
    files = []
    if run.flows <= MOST_LINES:
        flows, links = files = [Path(request.prefix + FLOWS), Path(request.prefix + LINKS)]
        write_flows(flows, run, ways, request.wishes.conf.payload_bytes)
        write_whole(links, (line.encode() for line in view.links.table()))
    if trace:
        write_trace(trace, request, view)
        files.append(trace)
    return files


def _summary(
    request: NetworkRequest, run: FlowRun, ways: PortRoutes, loads: LinkLoads | None, paths: Sequence[Path]
) -> Summary:
    files = [str(path) for path in paths]
    ends, first = run.rank_ends(), loads.begin if loads else run.first_start()
    marks = (max(ends), fsum(ends) / len(ends), ends[0]) if ends else (first, first, first)
    makespan, mean, zero = ((each - first) / 1000 for each in marks)
    data: dict[str, JsonValue] = {
        "files": [*files],
        "level": "flow",
        "routing": ways.routing,
        "complete": run.complete,
        "flows": run.flows,
        "flows_simulated": run.simulated,
        "seconds": round(run.seconds, 3),
        "makespan_us": makespan if run.complete else None,
        "mean_over_ranks_us": mean if run.complete else None,
        "rank_0_us": zero if run.complete else None,
    }
    took = f"flows {makespan:.3f} us, mean over ranks {mean:.3f} us; " if run.complete else ""
    lines = [
        f"{', '.join(files)}: {counted(run.flows, 'flow')}, {run.simulated} simulated in {run.seconds:.2f} s",
        *request.notes,
        f"{took}{iterations(request.job, run.finished, data)}",
    ]
    if not run.complete:
        stuck = sum(end < 0 for end in run.finished)
        lines.append(f"did not complete: {counted(stuck, 'rank')} of {len(run.finished)} wait for what never comes")
    if not loads:
        lines.append(
            f"no {FLOWS}, no {LINKS}, and of flows and links nothing in {PAGE}: that is for at most {MOST_LINES} flows"
        )
    lines += _assumed(request, run, data)
    lines.append(_trust(request, run, ways, data))
    if loads:
        lines.append(_busiest(loads, ways, names(request.fabric, tiers(request.fabric)), data))
    return Summary("\n".join(lines), data, failed=not run.complete)


def _busiest(loads: LinkLoads, ways: PortRoutes, named: list[str], data: dict[str, JsonValue]) -> str:
    found = loads.busiest()[:BUSIEST_SHOWN]
    data["busiest_links"] = [
        {"from": named[ways.owner(port)], "to": named[ways.peer[port]], "busy_percent": round(100 * share, 3)}
        for port, share in found
    ]
    shown = ", ".join(
        f"{named[ways.owner(port)]} to {named[ways.peer[port]]} {100 * share:.1f} %" for port, share in found
    )
    return f"busiest links: {shown}"


def _assumed(request: NetworkRequest, run: FlowRun, data: dict[str, JsonValue]) -> list[str]:
    """The parts of the files that the flow level leaves out, the steps of a ring and alike flows that it does not
    simulate.
    """
    found, check = [], run.check
    data["collapsing"] = {**check._asdict(), "agrees": check.agrees} if check else None
    if check and check.agrees:
        found.append(
            f"one flow for all that are alike: checked on a small case, where {check.simulated} flows stand for "
            f"{check.flows} and give all the times that they have on their own"
        )
    elif check:
        found.append(
            f"each flow is simulated: on a small case, flows that look alike differ by up to {check.farthest_ns:.0f} ns"
        )
    apart = run.classes.net.apart
    if apart:
        found.append(f"flows of a ring that differ by {apart} bytes are taken as equal")
    data["bytes_taken_as_equal"] = apart
    if run.steps:
        found.append(f"{run.steps[0]:,} of {run.steps[1]:,} steps are simulated, the rest goes on linearly")
    data["steps_simulated"], data["steps"] = run.steps or (None, None)
    return found


def _trust(request: NetworkRequest, run: FlowRun, ways: PortRoutes, data: dict[str, JsonValue]) -> str:
    """How far the result can be trusted: by how much the worst of a sample were off; with losses there is no limit."""
    weak, marked = judged(run, ways, request.fabric, request.wishes.conf)
    are_lost = loses(request.fabric, request.wishes.conf)
    longer, shorter = (None, None) if are_lost else (LONGER_PERCENT[weak], SHORTER_PERCENT[weak])
    data |= {"marks_expected": bool(marked), "weakness": weak}
    data |= {"worst_longer_percent": longer, "worst_shorter_percent": shorter}
    data |= counts(weak, are_lost=are_lost)
    lossy = f"; {LOSSY}" if weak in (MARKS, PAUSES) and are_lost else ""
    known = NO_LIMIT if are_lost else SAMPLE.format(longer=longer, shorter=shorter)
    if weak == MARKS:
        return f"not to be trusted: {_told(marked, request.fabric, ways)}, which --level packet follows{lossy}; {known}"
    return f"{DOUBTS.get(weak, 'no marks, pauses, queues or drift are expected')}{lossy}; {known}"


def _told(marked: list[Queue], fabric: Fabric, ways: PortRoutes) -> str:
    named, worst = names(fabric, tiers(fabric)), marked[0]
    ends = f"{named[ways.owner(worst.port)]} to {named[ways.peer[worst.port]]}"
    return (
        f"ECN marks expected at {counted(len(marked), 'port')}, most from {ends}, where up to {worst.queue // 1000} KB "
        f"queue up beside a threshold of {worst.threshold // 1000} KB"
    )
