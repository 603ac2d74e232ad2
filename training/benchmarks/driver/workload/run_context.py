"""Opens a workload's run: arguments (see driver.protocol.arguments), case config, PerfLog, process group."""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import torch

import vendors
from common.errors import InputProblems
from protocol.arguments import parse_arguments
from protocol.case_config import ConfigT
from protocol.case_file import settings_of, submission
from protocol.perflog import Event, PerfLogger
from training.benchmarks.driver.workload import accelerator, process_group
from training.benchmarks.driver.workload.placement import Placement, ProcessGroupError
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.usage import UnusableSettingsError, leave
from vendors import CaseFileError
from vendors.extern import NOTHING, Extern, find


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadContext(Generic[ConfigT]):
    """A run's state: settings (backend resolved), PerfLog, open process group, data folder, the vendor's own parts."""

    config: ConfigT
    logger: PerfLogger
    group: ProcessGroup
    data_dir: Path | None
    extern: Extern = NOTHING


@contextlib.contextmanager
def open_run(
    model: str,
    framework: str,
    config_class: type[ConfigT],
    argv: Sequence[str] | None = None,
    before_devices: Callable[[ConfigT, PerfLogger, Path | None, Extern], None] | None = None,
) -> Iterator[WorkloadContext[ConfigT]]:
    """Parse the arguments (sys.argv unless given), log SUBMIT_INFO and INIT_START, and open the process group.

    `before_devices` receives settings, PerfLog, data folder and the vendor's own parts between SUBMIT_INFO and
    INIT_START, before a device or a peer is held: the place to check for missing data. The workload logs from INIT_END
    on. Mistakes in arguments, config or devices are printed and end the process with exit code 2, as does an
    UnusableSettingsError in the block or in `before_devices`. The group is closed when the block ends.
    """
    arguments = parse_arguments(model, sys.argv[1:] if argv is None else argv)
    try:
        placement = Placement.from_environment()
        config, case_sha256 = settings_of(arguments, model, framework, config_class)
        vendor = arguments.vendor or accelerator.vendor_here()
        backend = config.backend or vendors.load(vendor).backend
        if vendors.load(vendor).device_type != "cpu" and backend == vendors.load(vendor).backend:
            accelerator.use(vendor)
        device = process_group.device_for(backend, placement.local_rank)
        extern = find(vendors.case_dir(vendor, model, framework))
    except (InputProblems, ProcessGroupError, vendors.UnknownVendor, vendors.BrokenVendor, CaseFileError) as error:
        leave(model, error)
    config = config.model_copy(update={"backend": backend})
    logger = PerfLogger(placement.rank)
    info = submission(arguments, model, framework, config, case_sha256, torch=str(torch.__version__), backend=backend)
    told = {"extern": dict(extern.files)} if extern.files else {}
    logger.log(Event.SUBMIT_INFO, info.model_dump(mode="json") | _surroundings(device, arguments.data_dir) | told)
    if before_devices is not None:
        try:
            before_devices(config, logger, arguments.data_dir, extern)
        except UnusableSettingsError as error:
            leave(model, error)
    logger.log(Event.INIT_START)
    with process_group.init(backend, timeout_s=config.timeout_s, device=device, placement=placement) as group:
        try:
            yield WorkloadContext(config=config, logger=logger, group=group, data_dir=arguments.data_dir, extern=extern)
        except (UnusableSettingsError, CaseFileError) as error:
            leave(model, error)


def _surroundings(device: torch.device, data_dir: Path | None) -> dict[str, object]:
    facts: dict[str, object] = {
        "host": platform.node(),
        "device": str(device),
        "data_dir": None if data_dir is None else str(data_dir),
    }
    facts["device_name"] = accelerator.device_name(device)
    if accelerator.is_accelerator(device):
        facts |= accelerator.accelerators(device).versions()
    return facts
