"""Finds the vendor whose devices a rank computes on; all that differs between vendors is asked of it."""

import contextlib
import importlib
from pathlib import Path

import torch
import torch.distributed as dist

import vendors
from training.benchmarks.driver.workload.placement import ProcessGroupError
from vendors.device import Accelerators
from vendors.processor import cpu_name, cpu_type

_CPU = "cpu"
_opened: dict[str, Accelerators] = {}


def is_accelerator(device: torch.device) -> bool:
    """Whether the device is another one than the host's processors."""
    return device.type != _CPU


def accelerators(device: torch.device) -> Accelerators:
    """The vendor's devices of `device`: of the run's vendor (`use`), else of the first that this torch is built for.

    Raises:
        ProcessGroupError: there is no such vendor.
    """
    if device.type not in _opened:
        for vendor in vendors.working():
            if vendor.device_type == device.type:
                with contextlib.suppress(ProcessGroupError):
                    return use(vendor.name)
        raise ProcessGroupError(f"no vendor has devices that torch {torch.__version__} calls {device.type!r}")
    return _opened[device.type]


def use(vendor: str) -> Accelerators:
    """The devices of a vendor, which from now on are those of their type.

    Raises:
        ProcessGroupError: the vendor has none, their plug-in is not installed, or torch is built for another's.
    """
    found = vendors.load(vendor)
    if found.device_type == _CPU:
        raise ProcessGroupError(f"vendor {vendor} has no accelerators")
    try:
        made: Accelerators = importlib.import_module(f"vendors.{vendor}.device").open_devices()
    except (ImportError, RuntimeError) as error:
        raise ProcessGroupError(f"torch {torch.__version__} lacks devices of vendor {vendor}: {error}") from error
    if not made.is_of_this_torch():
        raise ProcessGroupError(f"torch {torch.__version__} is not built for devices of vendor {vendor}")
    _opened[found.device_type] = made
    return made


def vendor_here() -> str:
    """The first vendor that has devices and a backend here, else the one without accelerators.

    A run by hand names no vendor.
    """
    for vendor in vendors.working():
        with contextlib.suppress(ProcessGroupError):
            if use(vendor.name).count() and dist.is_backend_available(vendor.backend):
                return vendor.name
            del _opened[vendor.device_type]
    return _CPU


def device_name(device: torch.device) -> str:
    """The driver's name of the device; of the CPU the model's name."""
    return accelerators(device).name(device) if is_accelerator(device) else cpu_name(Path("/proc/cpuinfo"))


def processor_type() -> str:
    """The host's processor, with the numbers of its type."""
    return cpu_type(Path("/proc/cpuinfo"))
