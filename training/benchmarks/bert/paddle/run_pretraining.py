"""Runs a rank of BERT pretraining in Paddle: `... driver.launch --launcher processes ... -- -m <this module> ...`."""

import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle

import vendors
from common.errors import InputProblems
from protocol.arguments import parse_arguments, round_number
from protocol.case_file import settings_of, submission
from protocol.perflog import Event, PerfLogger
from training.benchmarks.bert.paddle.config import Config
from training.benchmarks.bert.paddle.data import PreparedData, prepared
from training.benchmarks.bert.paddle.group import PaddleGroup, device_of, open_group
from training.benchmarks.bert.paddle.model import PaddleBert, fill, shapes
from training.benchmarks.bert.paddle.trainer import PaddleTrainer
from training.benchmarks.driver.training.data.data_identity import DataIdentity, identify, refuse_repeated
from training.benchmarks.driver.training.data.file_hashes import cache_folder
from training.benchmarks.driver.training.measuring import log_values
from training.benchmarks.driver.training.measuring.steady import SteadyState
from training.benchmarks.driver.training.settings.schedule import ScheduleError
from training.benchmarks.driver.training.settings.settings import PHASES
from training.benchmarks.driver.workload.placement import Placement, ProcessGroupError
from training.benchmarks.driver.workload.usage import UnusableSettingsError, leave
from vendors.processor import cpu_name

_KERNELS = {
    "attention": {"asked": "auto", "used": "paddle", "why": "paddle.nn.functional.scaled_dot_product_attention"},
    "optimizer": {"asked": "auto", "used": "paddle", "why": "paddle.optimizer"},
}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry of every rank. Exits with code 1 if a target is missed, with 2 for unusable settings or data."""
    begin = time.perf_counter()
    arguments = parse_arguments("bert", sys.argv[1:] if argv is None else argv)
    try:
        placement = Placement.from_environment()
        config, case_sha256 = settings_of(arguments, "bert", "paddle", Config)
        backend = config.backend or _backend_of(arguments.vendor)
        device = device_of(backend, placement.local_rank)
    except (InputProblems, ProcessGroupError, vendors.UnknownVendor, vendors.BrokenVendor) as error:
        leave("bert", error)
    config = config.model_copy(update={"backend": backend})
    logger = PerfLogger(placement.rank)
    info = submission(arguments, "bert", "paddle", config, case_sha256, backend=backend)
    logger.log(Event.SUBMIT_INFO, info.model_dump(mode="json") | _surroundings(device, arguments.data_dir))
    logger.log(Event.LAUNCH_TRAINING, ({"fused": {}} if placement.local_rank == 0 else {}) | {"kernels": _KERNELS})
    config = config.of_round(round_number())
    try:
        model = PaddleBert(config)
        data = prepared(config, arguments.data_dir, shapes(model))
        logger.log(Event.INIT_START)
        with open_group(backend, placement) as group:
            _run(config, logger, group, data, arguments.data_dir or Path(), begin)
    except (UnusableSettingsError, ScheduleError) as error:
        leave("bert", error)


def _run(
    config: Config, logger: PerfLogger, group: PaddleGroup, data: PreparedData, data_dir: Path, begin: float
) -> None:
    """Everything in the open process group; `begin` is the moment at which the process began."""
    identity = identify(data.files if config.identify_data else (), data_dir, group, cache_folder())
    refuse_repeated(identity, data_dir, data.train_files, data.evaluation_files)
    model = PaddleBert(config)  # on the device of the group
    fill(model, config.seed, data.weights)
    trainer = PaddleTrainer(config, group, logger, model, data)
    logger.log(Event.INIT_EVALUATION, trainer.evaluate())
    trainer.proof.enforce()
    files = {"data_files": identity.files} if identity.files and logger.rank == 0 else None
    logger.log(Event.INIT_END, files, other="Finish initialization")
    init_seconds = time.perf_counter() - begin
    trainer.train()
    result = _result(trainer, config, identity)
    seconds = {"e2e_time": time.perf_counter() - begin, "init_time": init_seconds}
    logger.log(Event.FINISHED, seconds | result)
    if result["converged"] is False:
        bounds = [str(target) for target in config.targets() if not target.met(trainer.metrics)]
        found = ", ".join(f"{name} {value:.4g}" for name, value in trainer.metrics.items())
        raise SystemExit(
            f"bert: target missed after {trainer.step} steps: wanted {' and '.join(bounds)}, found {found}"
        )


def _result(trainer: PaddleTrainer, config: Config, identity: DataIdentity) -> dict[str, Any]:
    """The value of FINISHED but for the times of the process; all ranks call it."""
    result = log_values.finished(
        trainer.progress(),
        config,
        trainer.use(),
        "sps",
        trainer.metrics,
        steady=SteadyState.of(trainer.meter.step_times, config.warmup_steps),
        size=log_values.ModelSize(parameters=trainer.parameters, work=trainer.work_per_sample(over_ranks=True)),
    )
    result |= {f"phase_{name}": None for name in PHASES} | {"profile_files": []}
    result |= {"one_training": trainer.proof.departure is None, "seed": config.seed}
    return result if identity.sha256 is None else result | {"data_sha256": identity.sha256}


def _backend_of(vendor: str | None) -> str:
    if vendor is not None:
        return vendors.load(vendor).backend
    return "nccl" if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() else "gloo"


def _surroundings(device: str, data_dir: Path | None) -> dict[str, object]:
    is_gpu = device.startswith("gpu")
    return {
        "host": platform.node(),
        "device": device,
        "data_dir": None if data_dir is None else str(data_dir),
        "device_name": paddle.device.cuda.get_device_name(device) if is_gpu else cpu_name(Path("/proc/cpuinfo")),
        "paddle": paddle.__version__,
    }


if __name__ == "__main__":
    main()
