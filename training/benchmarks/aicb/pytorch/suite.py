"""Runs the benchmark `aicb`: executes a workload, records each operation, and judges by the data received."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from protocol.perflog import Event, write_line
from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.reporting.path_report import gathered_path
from training.benchmarks.aicb.pytorch.reporting.summary import gathered_slowest, summary
from training.benchmarks.aicb.pytorch.running.assembly import Assembled, assemble
from training.benchmarks.aicb.pytorch.running.checking import DataCheck
from training.benchmarks.aicb.pytorch.running.computing import Computation
from training.benchmarks.aicb.pytorch.running.iterating import executed
from training.benchmarks.aicb.pytorch.running.rehearsal import rehearse
from training.benchmarks.aicb.pytorch.source import stage_workload
from training.benchmarks.aicb.pytorch.work import agreement
from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.classes import OpClasses
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from training.benchmarks.aicb.pytorch.work.stream import stream_of
from training.benchmarks.driver.workload.accelerator import device_name, is_accelerator
from training.benchmarks.driver.workload.output_folder import chosen_folder, log_folder
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.run_context import WorkloadContext, open_run
from workloads.analysis import aicb_output as output
from workloads.job.errors import AicbError
from workloads.oplog import file as oplog_file
from workloads.oplog.facts import LogFacts
from workloads.oplog.file import OpLog
from workloads.oplog.log import Log

EXCHANGES = 16


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """offset_ns: to be added to this rank's time.monotonic_ns to have rank 0's; error_ns: the most it is wrong by."""

    offset_ns: int
    error_ns: int


def measure(group: ProcessGroup) -> ClockOffset:
    """The offset by now. All ranks call it; rank 0 answers one after the other.

    Rank 0 reads its clock between a request and its answer. Half of the round trip is the largest error, however the
    two ways differ. Source: Cristian, Probabilistic clock synchronization, 1989.
    """
    place = group.placement
    word = torch.zeros(1, dtype=torch.int64, device=group.device)
    best: ClockOffset | None = None
    for rank in range(1, place.world_size):
        for _ in range(EXCHANGES):
            if place.rank == 0:
                dist.recv(word, rank)
                int(word)
                word.fill_(time.monotonic_ns())
                dist.send(word, rank)
            elif place.rank == rank:
                begin = time.monotonic_ns()
                dist.send(word, 0)
                dist.recv(word, 0)
                theirs = int(word)
                end = time.monotonic_ns()
                trip = end - begin
                found = ClockOffset(theirs - begin - trip // 2, -(-trip // 2))
                best = found if best is None or found.error_ns < best.error_ns else best
    return best or ClockOffset(0, 0)


def joined(before: ClockOffset, after: ClockOffset) -> ClockOffset:
    """One offset for a run from the estimates before and after it; a drift between them is part of the error."""
    offset = (before.offset_ns + after.offset_ns) // 2
    apart = abs(before.offset_ns - after.offset_ns)
    return ClockOffset(offset, max(before.error_ns, after.error_ns) + -(-apart // 2))


LOG_CSV = "workload_log.csv"


def main() -> None:
    """Entry of every rank. Exits with code 1 if received data was wrong, with 2 if the workload cannot run here."""
    begin = time.perf_counter()
    chosen, arguments = chosen_folder("aicb", sys.argv[1:])
    with open_run("aicb", "pytorch", Config, arguments) as run:
        folder = chosen or log_folder(run.group.placement.rank)
        stage, assembled = prepared(run)
        wrong = rehearse(assembled, DataCheck(run.config.seed, run.group.device)) if run.config.check else None
        run.logger.log(Event.INIT_END)
        before = measure(run.group)
        kinds = OpClasses.of(assembled.stream, facts_of(run, stage, assembled, before))
        recorder, times = executed(run, assembled, kinds)
        offset = joined(before, measure(run.group))
        facts = facts_of(run, stage, assembled, offset)
        log = recorder.log(facts, stage.workload)
        if folder is not None:
            oplog_file.write(folder / oplog_file.file_name(facts.rank), log)
        if facts.rank == 0:
            _print(log, run.config, folder)
        everyone = run.group.gathered({"times": times, "wrong": wrong, "error_ns": offset.error_ns})
        found = summary(log, kinds, run.config, [each["times"] for each in everyone], assembled.places.bytes)
        found |= gathered_path(log, assembled, [each["times"] for each in everyone], run.group)
        found |= gathered_slowest(log, [each["times"] for each in everyone], run.group)
        mistakes = _mistakes([each["wrong"] for each in everyone])
        found |= {
            "correct": "not_checked" if wrong is None else "fail" if mistakes else "pass",
            "clock_error_us": max(each["error_ns"] for each in everyone) / 1e3,
        }
        run.logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin, **found})
    if mistakes:
        raise SystemExit(f"aicb: wrong data was received: {'; '.join(mistakes[:5])}")


def prepared(run: WorkloadContext[Config]) -> tuple[StageWorkload, Assembled]:
    """The workload of this rank's stage, and everything to run it; all ranks call it.

    Raises:
        UnusableSettingsError: it cannot run here; every rank raises it, before buffers exist.
    """
    config, place = run.config, run.group.placement
    try:
        stage = stage_workload(config, place.rank, place.world_size, run.data_dir)
        caller = Caller(stage, place.rank, place.world_size, config.factor)
        stream = stream_of(stage, caller, blocking=config.timing == "each")
        replays = config.timing == "replay"
        compute = Computation(stream, config.factor, run.group.device) if replays else None
        settings = repr((config.scale, config.timing, config.iterations))
        plan = agreement.plan_of(stream, stage.groups, place.rank, settings)
    except AicbError as error:
        plan = agreement.RankPlan(str(error))
    plans = run.group.gathered(plan)
    agreement.check(plans)
    return stage, assemble(stream, plans, run.group, config.factor, compute)


def facts_of(run: WorkloadContext[Config], stage: StageWorkload, assembled: Assembled, offset: ClockOffset) -> LogFacts:
    """Facts that hold for all operations of this rank."""
    place, device = run.group.placement, run.group.device
    name = device_name(device) if is_accelerator(device) else "cpu"
    return LogFacts(
        rank=place.rank,
        world_size=place.world_size,
        mode=run.config.timing,
        stage=stage.stage,
        backend=run.group.backend,
        device=name,
        frame=stage.frame,
        scale=run.config.scale,
        clock_offset_ns=offset.offset_ns,
        clock_error_ns=offset.error_ns,
        wall_ns=time.time_ns() - time.monotonic_ns(),
        groups={name: list(ranks) for name, ranks in assembled.teams},
    )


def _print(log: OpLog, config: Config, folder: Path | None) -> None:
    for line in output.console(log, units=config.units, each=config.print_ops):
        write_line(sys.stdout, line + "\n")
    if folder is not None:
        Log.of_ops(log, config.units).save(folder / LOG_CSV)


def _mistakes(of_ranks: Sequence[list[str] | None]) -> list[str]:
    """The wrong data that each rank received, in words."""
    return [f"rank {rank}: {text}" for rank, found in enumerate(of_ranks) for text in found or ()]
