"""Runs each tool on all hosts at once, or between pairs of them; what one host's output says is gathered on all."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from protocol.perflog import Event
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.run_context import open_run
from training.benchmarks.tools.calls import Call, awaited_server
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.pytorch.host import (
    INSPECTOR,
    PORT,
    Bench,
    NotRunError,
    alone,
    bench_of,
    devices_of,
    told,
)
from training.benchmarks.tools.readers import Answer
from training.benchmarks.tools.table import TOOLS


def main() -> None:
    """Entry of every rank."""
    begin = time.perf_counter()
    with open_run("tools", "pytorch", Config) as run:
        config, group, logger = run.config, run.group, run.logger
        logger.log(Event.INIT_END)
        names = [*config.tools, *([INSPECTOR] if config.inspector_folder else [])]
        logger.log(Event.TRAIN_START, {"total_steps": len(names)})
        results = []
        for step, name in enumerate(names, start=1):
            place = {"step": step, "total_steps": len(names), "tool": name}
            logger.log(Event.STEP_BEGIN, place)
            if name in TOOLS and TOOLS[name].scope == "pairs":
                every = group.gathered(told(partial(_between_hosts, name, config, group)))
            else:
                every = group.gathered(told(partial(alone, name, config)))
            results.append(_result(name, every))
            logger.log(Event.STEP_END, place | results[-1])
        logger.log(Event.TRAIN_END)
        counts = {key: sum(len(each[key]) for each in results) for key in ("figures", "failed", "not_run")}
        logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin, **counts})


def _between_hosts(name: str, config: Config, group: ProcessGroup) -> Answer:
    """The best figure of each device over its two neighbours in a ring: a slow host is slow with both.

    Raises:
        NotRunError: this host cannot take part, or no call with it gave a result.
    """
    why: NotRunError | None = None
    bench, devices = None, list[str]()
    try:
        bench, devices = bench_of(name, config), devices_of(config)
    except NotRunError as error:
        why = error
    hosts = group.gathered({"address": own_address(), "devices": devices})
    able = [rank for rank, host in enumerate(hosts) if host["devices"]]
    best = max if TOOLS[name].better == "higher" else min
    figures: dict[str, float] = {}
    words = "no call between two hosts"
    for place in range(min((len(hosts[rank]["devices"]) for rank in able), default=0)):
        for number, pairs in enumerate(ring(able)):
            for said in _meet(bench, hosts, pairs, place, group, PORT + number):
                if isinstance(said, str):
                    words = said
                else:
                    figures[devices[place]] = best(said, figures.get(devices[place], said))
    if why is not None:
        raise why
    if len(able) < 2:
        raise NotRunError("no other host has it", is_missing=True)
    if not figures:
        raise NotRunError(words)
    return Answer(figures=figures)


def ring(ranks: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Rounds of pairs (server, client) in which each rank meets both its neighbours, no rank twice in a round."""
    count = len(ranks)
    edges = [(ranks[i], ranks[(i + 1) % count]) for i in range(count if count > 2 else count - 1)]
    rounds: list[list[tuple[int, int]]] = [edges[0::2], edges[1::2]]
    if count > 2 and count % 2:
        rounds = [edges[0:-1:2], edges[1::2], edges[-1:]]
    return [each for each in rounds if each]


def _meet(
    bench: Bench | None,
    hosts: Sequence[dict[str, Any]],
    pairs: Sequence[tuple[int, int]],
    place: int,
    group: ProcessGroup,
    port: int,
) -> list[float | str]:
    """One round: servers listen before clients come; the client's figure, or why there is none, is that of both. All
    ranks call it.
    """
    mine = group.placement.rank
    server = next((pair for pair in pairs if pair[0] == mine), None)
    client = next((pair for pair in pairs if pair[1] == mine), None)
    words = ("-p", str(port))
    said: dict[int, float | str] = {}
    started = _started(bench, hosts[mine], place, words) if server else None
    try:
        listening = group.gathered(started is not None and awaited_server(started, port))
        if client and bench is not None:
            device, address = hosts[mine]["devices"][place], hosts[client[0]]["address"]
            heard = _figure(bench, device, *words, address) if listening[client[0]] else "the server does not listen"
            said = dict.fromkeys(client, heard)
        every = group.gathered(said)
    finally:
        if started is not None:
            started.__exit__()
    return [each[mine] for each in every if mine in each]


def _started(bench: Bench | None, host: dict[str, Any], place: int, words: Sequence[str]) -> Call | None:
    try:
        return bench.call(host["devices"][place], *words) if bench else None
    except OSError:
        return None


def _figure(bench: Bench, device: str, *words: str) -> float | str:
    """The figure of a client, or why there is none."""
    try:
        with bench.call(device, *words) as call:
            return next(iter(bench.read(call.wait()).figures.values()))
    except (NotRunError, OSError) as error:
        return str(error)


def own_address() -> str:
    """The address of this host that reaches the master, which other hosts reach, too; no packet is sent."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, kind, _, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def _result(name: str, every: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The STEP_END of a tool: figures by part, each of all hosts by rank; failures and what is not run, by rank."""
    tool = TOOLS.get(name)
    unit, better = (tool.unit, tool.better) if tool else ("us", "higher")
    of_hosts = [host.get("figures", {}) for host in every]
    figures = [
        {
            "test": f"{name} {part}".strip(),
            "unit": unit,
            "better": better,
            "values_of_ranks": [figures.get(part) for figures in of_hosts],
        }
        for part in dict.fromkeys(part for figures in of_hosts for part in figures)
    ]
    return {
        "figures": figures,
        "failed": {str(rank): host["failed"] for rank, host in enumerate(every) if host.get("failed")},
        "passed": [host.get("passed", 0) for host in every],
        "not_run": {
            str(rank): {"why": host["not_run"], "is_missing": host["is_missing"]}
            for rank, host in enumerate(every)
            if "not_run" in host
        },
    }
