"""Runs the network benchmark: measures what the case asks for, answers in words, and judges by the data received."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from training.benchmarks.driver.protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import UnusableSettingsError, WorkloadContext, open_run
from training.benchmarks.network import answers, nccl_tests
from training.benchmarks.network.analysis import analyse
from training.benchmarks.network.links import advertised_gbps
from training.benchmarks.network.pytorch.config import PARTS, SWEEPS, Config
from training.benchmarks.network.pytorch.output import Output, chosen_folder, rows_of
from training.benchmarks.network.pytorch.sweep import Sweep, worst
from training.benchmarks.network.pytorch.tools import ToolComparison
from training.benchmarks.network.sizes import format_size


def main() -> None:
    """Entry of every rank. Exits with code 1 if received data was wrong, with 2 if the case cannot run here."""
    begin = time.perf_counter()
    folder, arguments = chosen_folder(sys.argv[1:])
    with open_run("network", "pytorch", Config, arguments) as run:
        config, logger = run.config, run.logger
        output = Output(run.group, folder)
        work = Sweep(run) if config.tool in SWEEPS else ToolComparison(run)
        program = _find_nccl_tests(run) if config.tool == "nccl_tests" else None
        logger.log(Event.INIT_END)
        logger.log(Event.TRAIN_START, {"total_steps": work.total_steps})
        steps = list(work.steps(output))
        logger.log(Event.TRAIN_END)
        figures, sentences = _answers(run, steps)
        problem = ""
        if config.tool == "nccl_tests":
            ratios, lines, problem = _beside_nccl_tests(run, program, steps)
            figures["ours_over_nccl_tests"], sentences = ratios, [*sentences, *lines]
        advertised = advertised_gbps(config.expected_link, config.expected_links)
        output.finish(steps, sentences, plot=config.tool == "all_reduce_bench", advertised=advertised)
        summary = {"e2e_time": time.perf_counter() - begin, **_summary(steps), **figures}
        logger.log(Event.FINISHED, summary | ({"answer": "; ".join(sentences)} if sentences else {}))
    failed = dict.fromkeys(
        format_size(row["size_bytes"]) for step in steps for row in rows_of(step) if row["correct"] == "fail"
    )
    if failed:
        raise SystemExit(f"network: {steps[0]['collective']} delivered wrong data at {', '.join(failed)}")
    if problem:
        raise SystemExit(f"network: {problem}")


def _find_nccl_tests(run: WorkloadContext[Config]) -> Path | None:
    """The path of the program on rank 0, None elsewhere.

    Raises:
        UnusableSettingsError: the program cannot run here; every rank raises it.
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


# Fraction of the waiting ranks' time-out that rank 0 may spend in nccl-tests.
_NCCL_TESTS_SHARE = 0.8


def _beside_nccl_tests(
    run: WorkloadContext[Config], program: Path | None, steps: Sequence[dict[str, Any]]
) -> tuple[dict[str, float], list[str], str]:
    """({size: our busbw / theirs}, sentences, problem) on every rank; the others wait while rank 0 runs it."""
    config = run.config
    found: list[tuple[dict[str, float], list[str], str]] = [({}, [], "")]
    if program is not None:
        try:
            theirs = nccl_tests.run(
                program,
                [int(step["size_bytes"]) for step in steps],
                gpus=run.group.placement.local_world_size,
                dtype=config.dtype,
                warmup=config.warmup_iterations,
                iterations=config.iterations,
                timeout_s=_NCCL_TESTS_SHARE * config.timeout_s,
            )
            ratios, sentences = nccl_tests.beside(steps, theirs)
            found = [({format_size(size): ratio for size, ratio in ratios.items()}, sentences, "")]
        except nccl_tests.NcclTestsError as error:
            found = [({}, [f"nccl-tests was not measured: {error}"], str(error))]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def _summary(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [row for step in steps for row in rows_of(step)]
    best = max(rows, key=lambda row: float(row["busbw_GBps"]))
    return {
        "correct": worst([str(row["correct"]) for row in rows]),
        "max_busbw_GBps": best["busbw_GBps"],
        "peak_size_bytes": best["size_bytes"],
        "avg_busbw_GBps": sum(row["busbw_GBps"] for row in rows) / len(rows),
        "max_algbw_GBps": max(row["algbw_GBps"] for row in rows),
        "min_p50_us": min(row["time_us"]["p50"] for row in rows),
    }


def _answers(run: WorkloadContext[Config], steps: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Figures and sentences that answer the case's questions; the same on every rank."""
    config = run.config
    if config.tool == "all_reduce_latency_comp":
        ratio, sentence = answers.one_against_many(steps, PARTS)
        return {"many_over_one": ratio}, [sentence]
    if config.tool not in SWEEPS:
        ratio, sentence = answers.object_against_tensor(steps, run.group.backend)
        return {"object_over_tensor": ratio}, [sentence]
    figures: dict[str, Any] = {}
    sentences: list[str] = []
    best = max(float(row["busbw_GBps"]) for step in answers.between_hosts(steps) for row in rows_of(step))
    if config.expected_link is not None:
        figures["measured_over_expected"], sentence = answers.expectation(
            best, config.expected_link, config.expected_links
        )
        sentences.append(sentence)
    elif config.tool == "all_reduce_bench":
        sentences.append(
            f"measured {best:.4g} GB/s busbw; expected_link is not set: no advertised speed to compare with"
        )
    if config.collective == "all_reduce" and config.pattern == "all":
        verdict, sentence = answers.training_at_scale(best, run.group.placement.nnodes)
        if verdict is not None:
            figures["zero3_at_scale"] = verdict
        if verdict is not None or config.tool == "all_reduce_bench":
            sentences.append(sentence)
    found = analyse(steps, slow_percent=config.slow_percent, late_percent=config.late_percent)
    if found is not None:
        figures["noise_percent"] = found.noise_percent
        if found.bisection_gbps is not None:
            figures["bisection_GBps"] = found.bisection_gbps
        sentences += found.sentences
    return figures, sentences
