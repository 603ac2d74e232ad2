"""The entry of every rank of a training benchmark: prepares, trains, and reports its result."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protocol.arguments import round_number
from protocol.perflog import Event, PerfLogger
from training.benchmarks.driver.training.benchmark import PreparedTraining, TrainingBenchmark, check_names, prepare
from training.benchmarks.driver.training.data import hugging_face
from training.benchmarks.driver.training.data.data_identity import DataIdentity, identify, refuse_repeated
from training.benchmarks.driver.training.data.file_hashes import cache_folder
from training.benchmarks.driver.training.layout.auto_layout import (
    LayoutChoice,
    agree_on_layout,
    choose_layout,
    device_bytes_of,
)
from training.benchmarks.driver.training.measuring import report
from training.benchmarks.driver.training.measuring.steady import SteadyState
from training.benchmarks.driver.training.model import kernels
from training.benchmarks.driver.training.model.attention import chosen_by_torch
from training.benchmarks.driver.training.model.precision import DTYPES
from training.benchmarks.driver.training.model.vendors_parts import with_optimizer
from training.benchmarks.driver.training.settings.schedule import ScheduleError
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.training.trainer import Trainer
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import device_for
from training.benchmarks.driver.workload.run_context import WorkloadContext, open_run
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.extern import Extern

ASKED_TOKENS = 1024
"""Of the sequence at most for which torch is asked for its kernel: longer ones take the same and much memory."""


def run_training(
    benchmark: TrainingBenchmark[Any], config_class: type[TrainingConfig], argv: Sequence[str] | None = None
) -> None:
    """Entry of every rank. Exits with code 1 if a target is missed, with 2 for unusable settings or data."""
    begin = time.perf_counter()
    prepared: list[tuple[PreparedTraining, LayoutChoice | None]] = []

    def before_devices(config: TrainingConfig, logger: PerfLogger, data_dir: Path | None, extern: Extern) -> None:
        placement = Placement.from_environment()
        local_rank = placement.local_rank
        assert config.backend is not None  # open_run has resolved it
        device = device_for(config.backend, local_rank)
        libraries = kernels.Libraries(device)
        chosen = with_optimizer(kernels.choose(config, benchmark.attentions, libraries), extern)
        # The other ranks of the node have the same libraries.
        found = {"fused": libraries.all()} if local_rank == 0 else {}
        layout = _layout(benchmark, config, device, placement, chosen.compile_backend)
        decided = {} if layout is None else {"layout": layout.record()}
        logger.log(Event.LAUNCH_TRAINING, found | {"kernels": chosen.record()} | decided)
        of_round = config.of_round(round_number())
        laid_out = of_round if layout is None else layout.applied(of_round)
        prepared.append((prepare(benchmark, laid_out, data_dir, chosen), layout))

    with open_run(benchmark.name, "pytorch", config_class, argv, before_devices=before_devices) as run:
        _check_ranks(run.config, run.group.placement)
        ready, layout = prepared.pop()
        agree_on_layout(layout)
        of_round = run.config.of_round(round_number())
        run = replace(run, config=of_round if layout is None else layout.applied(of_round))
        identity = identify(
            ready.files if run.config.identify_data else (),
            run.data_dir or Path(),
            run.group,
            cache_folder(),
            benchmark.published_md5,
        )
        refuse_repeated(identity, run.data_dir or Path(), ready.data.train_files, ready.data.evaluation_files)
        try:
            trainer = Trainer(benchmark, run, ready)
        except ScheduleError as error:
            raise UnusableSettingsError(str(error)) from error
        if trainer.can_evaluate:
            run.logger.log(Event.INIT_EVALUATION, trainer.evaluate())
        else:
            trainer.compare()
        check_names(benchmark, run.config, trainer.metrics)
        trainer.check_gradients()
        files = {"data_files": identity.files} if identity.files and run.logger.rank == 0 else {}
        run.logger.log(Event.INIT_END, files | trainer.layers.record(), other="Finish initialization")
        init_seconds = time.perf_counter() - begin
        trainer.train()
        times = {"init_time": init_seconds}
        result = _result(trainer, benchmark, run, identity) | _attention(ready.kernels.attention.used, run)
        if layout is not None:
            result |= layout.finished()
        run.logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin} | times | result)
        # After the result, which a full disk then leaves.
        if run.config.save_weights is not None:
            hugging_face.write(
                Path(run.config.save_weights),
                trainer.model.module,
                benchmark.published_facts(run.config),
                benchmark.published_names(run.config),
            )
    if result["converged"] is False:
        bounds = [str(target) for target in run.config.targets() if not target.met(trainer.metrics)]
        found = ", ".join(f"{name} {value:.4g}" for name, value in trainer.metrics.items())
        raise SystemExit(
            f"{benchmark.name}: target missed after {trainer.step} steps: wanted {' and '.join(bounds)}, found {found}"
        )


def _check_ranks(config: TrainingConfig, place: Placement) -> None:
    """Check the settings that depend on the number of ranks, as the plan does."""
    refusal = config.refusal(nnodes=place.nnodes, nproc=place.local_world_size)
    if refusal is not None:
        raise UnusableSettingsError(refusal)


def _layout(
    benchmark: TrainingBenchmark[Any],
    config: TrainingConfig,
    device: torch.device,
    placement: Placement,
    compile_backend: str | None,
) -> LayoutChoice | None:
    """The choice of layout = "auto", None where the layout is set."""
    if config.layout != "auto":
        return None
    return choose_layout(
        benchmark,
        config,
        world_size=placement.world_size,
        per_node=placement.local_world_size,
        device_bytes=device_bytes_of(config, device, placement),
        on_cpu=device.type == "cpu",
        compile_backend=compile_backend,
    )


def _attention(used: str, run: WorkloadContext[TrainingConfig]) -> dict[str, str]:
    """The kernel of a decoder's attention, if torch picks it, for FINISHED."""
    model = run.config.described_model()
    if model is None or used != "sdpa":
        return {}
    tp_size, _ = run.config.tensor_parallelism()
    heads, groups = (max(1, model[key] // tp_size) for key in ("heads", "kv_heads"))
    shape = (heads, groups, model["hidden"] // model["heads"])
    return {
        "attention_kernel": chosen_by_torch(
            shape, min(model["seq"], ASKED_TOKENS), DTYPES[run.config.precision], run.group.device
        )
    }


def _result(
    trainer: Trainer,
    benchmark: TrainingBenchmark[Any],
    run: WorkloadContext[TrainingConfig],
    identity: DataIdentity,
) -> dict[str, Any]:
    """The value of FINISHED but for the times of the process; all ranks call it."""
    result = report.finished(
        trainer.progress(),
        run,
        benchmark.throughput_unit,
        trainer.metrics,
        steady=SteadyState.of(trainer.meter.step_times, run.config.warmup_steps),
        parameters=trainer.parameters,
        work=trainer.work.per_sample(over_ranks=True),
    )
    result |= {name: trainer.metrics[key] for name, key in benchmark.final_names.items() if key in trainer.metrics}
    result |= trainer.profiling.phases() | {"profile_files": trainer.profiling.files}
    result |= {"one_training": trainer.proof.departure is None, "seed": run.config.seed} | trainer.layers.record()
    return result if identity.sha256 is None else result | {"data_sha256": identity.sha256}
