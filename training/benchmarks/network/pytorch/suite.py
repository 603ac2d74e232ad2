"""Runs the network benchmark: measures what the case asks for, answers in words, and judges by the data received."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from common.units import format_size
from protocol.perflog import Event
from training.benchmarks.driver.workload.accelerator import accelerators, device_name, is_accelerator
from training.benchmarks.driver.workload.output_folder import chosen_folder
from training.benchmarks.driver.workload.run_context import WorkloadContext, open_run
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.hosts import nccl_tests
from training.benchmarks.network.hosts.links import advertised_gbps
from training.benchmarks.network.hosts.nics import nic_of
from training.benchmarks.network.patterns.topology import UNKNOWN, HostWidth, Topology, TopologyError, read_topology
from training.benchmarks.network.pytorch.choices import SWEEPS
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.congestion import Congestion
from training.benchmarks.network.pytorch.measuring.lineup import line_up
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.overlap import Overlap
from training.benchmarks.network.pytorch.measuring.partial import KeptSteps
from training.benchmarks.network.pytorch.measuring.scan import AdaptiveScan
from training.benchmarks.network.pytorch.measuring.sharing import Exchange
from training.benchmarks.network.pytorch.measuring.soak import LongRun
from training.benchmarks.network.pytorch.measuring.sweep import Sweep
from training.benchmarks.network.pytorch.measuring.tools import ToolComparison
from training.benchmarks.network.pytorch.operations.variants import refuse_unsupported
from training.benchmarks.network.pytorch.summing import answered, compared, summary
from training.benchmarks.network.slow_parts.analysis import analyse_scan
from training.benchmarks.network.slow_parts.readings import scan_of


def surroundings(run: WorkloadContext[Config]) -> Topology:
    """The facts about the hosts, the same on every rank. All ranks call it.

    Raises:
        UnusableSettingsError: the topology file cannot be used; every rank raises it.
    """
    told = _topology(run) if run.config.topology is not None else UNKNOWN
    if run.config.pattern == "all":
        return told
    names = _devices(run) if run.config.pattern == "rail_pairs" else {}
    return replace(told, devices=names | dict(told.devices), kinds=_kinds(run) | dict(told.kinds))


def _kinds(run: WorkloadContext[Config]) -> dict[int, str]:
    """The devices of each host by node rank: what its accelerators are called, or without any its CPU."""
    device = run.group.device
    own = device_name(device)
    found: list[tuple[int, str]] = [(0, "")] * run.group.placement.world_size
    dist.all_gather_object(found, (int(os.environ["GROUP_RANK"]), own))
    return {node: name for node, name in found if name}


def _topology(run: WorkloadContext[Config]) -> Topology:
    hosts = [HostWidth(name=host.name, ranks=len(host.ranks)) for host in line_up(run.group)]
    found: list[Topology | str] = [""]
    if run.group.placement.rank == 0:
        try:
            found = [read_topology(Path(str(run.config.topology)), hosts)]
        except TopologyError as error:
            found = [str(error)]
    dist.broadcast_object_list(found, src=0)
    if isinstance(found[0], str):
        raise UnusableSettingsError(found[0])
    return found[0]


def _devices(run: WorkloadContext[Config]) -> dict[tuple[int, int], str]:
    """The NIC of each rank by node rank and local rank; ranks that know none are left out."""
    local = int(os.environ["LOCAL_RANK"])
    own = nic_of(local, _pci_addresses(run), os.environ)
    found: list[tuple[int, int, str]] = [(0, 0, "")] * run.group.placement.world_size
    dist.all_gather_object(found, (int(os.environ["GROUP_RANK"]), local, own))
    return {(node, rank): name for node, rank, name in found if name}


def _pci_addresses(run: WorkloadContext[Config]) -> list[str]:
    """Those of the host's accelerators by local rank; none on CPUs."""
    if not is_accelerator(run.group.device):
        return []
    devices = accelerators(run.group.device)
    return [f"{address}.0" for address in map(devices.pci_address, range(devices.count())) if address]


def main() -> None:
    """Entry of every rank. Exits with code 1 if received data was wrong, with 2 if the case cannot run here."""
    begin = time.perf_counter()
    folder, arguments = chosen_folder("network", sys.argv[1:])
    with open_run("network", "pytorch", Config, arguments) as run:
        config, logger = run.config, run.logger
        output = Output(run.group, folder)
        around = surroundings(run)
        work = _work(run, around)
        program = _find_nccl_tests(run) if config.tool == "nccl_tests" else None
        logger.log(Event.INIT_END)
        is_first = run.group.placement.rank == 0
        recorded = {"around": around.to_json()} if is_first and config.pattern != "all" else {}
        logger.log(Event.TRAIN_START, {"total_steps": work.total_steps, **work.forecast(output), **recorded})
        with KeptSteps(
            logger, is_first=is_first, total_steps=work.total_steps, conclude=partial(_broken_off, output)
        ) as kept:
            for step in work.steps(output):
                kept.add(step)
        steps = kept.steps
        logger.log(Event.TRAIN_END)
        exchange = Exchange(run.group, config.timeout_s)
        if config.tool == "nccl_tests":
            _free_devices(run, exchange)
        if isinstance(work, ToolComparison):
            work.time_as_the_original()
        verdict, summary = _concluded(run, work, steps, output, program, around) if is_first else ({}, {})
        verdict = exchange.from_first(verdict)
        logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin, "correct": verdict["correct"], **summary})
    if verdict["problem"]:
        raise SystemExit(f"network: {verdict['problem']}")


def _broken_off(output: Output, steps: list[dict[str, Any]], sentence: str) -> dict[str, Any]:
    """FINISHED's value of a run that ended early, from rank 0's steps; prints the table's end with the sentence."""
    output.finish(steps, [sentence], plot=False, advertised=None)
    return summary(steps)[0]


Work = Sweep | AdaptiveScan | ToolComparison | Overlap | Congestion | LongRun
_LOADED: dict[str, Callable[[WorkloadContext[Config]], Work]] = {
    "overlap": Overlap,
    "congestion": Congestion,
    "soak": LongRun,
}


def _work(run: WorkloadContext[Config], around: Topology) -> Work:
    if run.config.tool in SWEEPS:
        return AdaptiveScan(run, around) if run.config.pattern == "adaptive" else Sweep(run)
    if run.config.tool != "congestion":  # its groups are not those of all ranks: it checks its own
        refuse_unsupported(run.config, run.group.backend, [run.group.placement.world_size])
    return _LOADED.get(run.config.tool, ToolComparison)(run)


def _concluded(
    run: WorkloadContext[Config],
    work: Work,
    steps: Sequence[dict[str, Any]],
    output: Output,
    program: Path | None,
    around: Topology,
) -> tuple[dict[str, str], dict[str, Any]]:
    """Rank 0's conclusion from its steps: the verdict of all ranks (correct, problem), and FINISHED's value."""
    config = run.config
    changes = work.changes() if isinstance(work, LongRun) else {}
    figures, sentences = answered(config, run.group.placement.nnodes, steps, run.group.backend, changes)
    analysis = analyse_scan(scan_of(steps), config.bounds, around)
    if analysis is not None:
        figures |= compared(analysis)
        sentences += analysis.sentences
    if isinstance(work, ToolComparison) and work.original is not None:
        figures["object_over_tensor_original"] = work.original
        sentences.append(f"without barrier and reading, as the original times it: {work.original:.1f}x")
    if isinstance(work, AdaptiveScan) and work.result is not None:
        figures |= work.figures()
        sentences += work.sentences()
    found, wrong_sizes = summary(steps)
    failed = dict.fromkeys(map(format_size, wrong_sizes))
    problem = f"{steps[0]['collective']} delivered wrong data at {', '.join(failed)}" if failed else ""
    if isinstance(work, Sweep | AdaptiveScan | Overlap | Congestion | LongRun) and work.skipped:
        figures["skipped_sizes"] = work.skipped
    if program is not None:
        ratios, lines, theirs = _beside_nccl_tests(run, program, steps)
        figures["ours_over_nccl_tests"], sentences, problem = ratios, [*sentences, *lines], problem or theirs
    advertised = advertised_gbps(config.expected_link, config.expected_links)
    output.finish(steps, sentences, plot=config.tool == "all_reduce_bench", advertised=advertised)
    found = {**found, **figures} | ({"answer": "; ".join(sentences)} if sentences else {})
    return {"correct": str(found["correct"]), "problem": problem}, found


def _find_nccl_tests(run: WorkloadContext[Config]) -> Path | None:
    """The path of nccl-tests' program on rank 0, None elsewhere; all ranks must call it together.

    Raises:
        UnusableSettingsError: on all ranks, if rank 0 finds no such program.
    """
    program: Path | None = None
    problem = [""]
    if run.group.placement.rank == 0:
        try:
            program = nccl_tests.find(run.config.collective, run.config.nccl_tests)
        except nccl_tests.NcclTestsError as error:
            problem = [str(error)]
    dist.broadcast_object_list(problem, src=0)
    if problem[0]:
        raise UnusableSettingsError(problem[0])
    return program


def _free_devices(run: WorkloadContext[Config], exchange: Exchange) -> None:
    """Give the memory of the measurements back to the device on every rank, before rank 0 starts nccl-tests on it."""
    if is_accelerator(run.group.device):
        accelerators(run.group.device).give_back()
    exchange.to_first(range(run.group.placement.world_size), {})


# Fraction of the waiting ranks' time-out that rank 0 may spend in nccl-tests.
_NCCL_TESTS_SHARE = 0.8


def _beside_nccl_tests(
    run: WorkloadContext[Config], program: Path, steps: Sequence[dict[str, Any]]
) -> tuple[dict[str, float], list[str], str]:
    """({size: our busbw / theirs}, sentences, problem) on rank 0; the others wait in the store, devices idle."""
    config = run.config
    try:
        theirs = nccl_tests.run(
            program,
            [int(step["size_bytes"]) for step in steps],
            gpus=run.group.placement.local_world_size,
            chosen=nccl_tests.options_of(
                dtype=config.dtype,
                warmup=config.warmup_iterations,
                iterations=config.iterations,
                op=config.op,
                root=config.root,
                aggregate=config.aggregate,
                waits=config.timing == "each",
            ),
            timeout_s=_NCCL_TESTS_SHARE * config.timeout_s,
        )
    except nccl_tests.NcclTestsError as error:
        return {}, [f"nccl-tests was not measured: {error}"], str(error)
    return *nccl_tests.beside(steps, theirs), ""
