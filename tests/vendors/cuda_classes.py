"""Calls all of vendors/cuda_device.py on the signatures of this torch's own torch.cuda; prints JSON.

    python -m tests.vendors.cuda_classes

Nothing reaches a device: neither is needed, nor a driver. A build of torch for CUDA also has NCCL's classes.
"""

import contextlib
import copy
import inspect
import json
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.accelerator import vendor_here
from vendors.nvidia.device import NvidiaAccelerators

PROPERTIES = {
    "pci_domain_id": 0, "pci_bus_id": 27, "pci_device_id": 0, "total_memory": 80, "L2_cache_size": 50,
    "multi_processor_count": 132,
}  # fmt: skip
ARGUMENTS: dict[str, Any] = {
    "allowed": False, "cycles": 1000, "entries": 9, "index": 0, "kernel": "inductor", "operation": lambda: None,
    "path": "x", "priority": -1, "state": torch.zeros(8, dtype=torch.uint8), "tensor": torch.zeros(8),
    "capability": None,
}  # fmt: skip
EVENTS = ("record", "query", "synchronize", "elapsed_time")


def called() -> list[str]:
    """The functions of torch.cuda that were called by their real signatures: those of every method of the vendor's.

    Raises:
        AttributeError, TypeError: torch has none of that name, or it takes other arguments.
    """
    devices = NvidiaAccelerators()
    real, stand_in = torch.cuda, mock.create_autospec(torch.cuda)
    stand_in.get_device_properties.return_value = SimpleNamespace(**PROPERTIES)
    stand_in.mem_get_info.return_value = (1, 2)
    stand_in.nccl.version.return_value = (2, 29)
    devices.module = stand_in
    stream = stand_in.Stream(priority=0)
    given = ARGUMENTS | {"stream": stream, "device": torch.device("cuda", 0), "peer": torch.device("cuda", 1)}
    for name, method in inspect.getmembers(devices, inspect.ismethod):
        if name.startswith("_"):
            continue
        result = method(**{each: given[each] for each in inspect.signature(method).parameters})
        if isinstance(result, contextlib.AbstractContextManager):
            with result:
                pass
        elif callable(result):
            result()
    devices.remember_memory(None)
    # A mock has the signature of a class's __init__; these have __new__.
    for kind, arguments in ((real.Event, {"enable_timing": True}), (real.Stream, {"priority": -1})):
        inspect.signature(kind.__new__).bind(kind, **arguments)
    return sorted({str(call).partition("(")[0].removeprefix("call.") for call in stand_in.mock_calls})


def of_the_build_for_cuda() -> dict[str, Any]:
    """What only torch's build for CUDA has, as far as it can be made without a driver."""
    bound: Any = dist.ProcessGroupNCCL
    cuda: Any = torch.cuda
    classes: Any = torch._C
    options = bound.Options()
    options.config.min_ctas = 4
    event = cuda.Event(enable_timing=True)
    runtime = {name for name in dir(classes._cudart) if name.startswith("cudaHost")}
    return {
        "backend": dist.is_backend_available("nccl"),
        "version": list(cuda.nccl.version()),
        "options": type(copy.deepcopy(options)).__name__,  # as split_group does
        "group": [name for name in ("supports_splitting", "perform_nocolor_split") if hasattr(bound, name)],
        "event": [event.query(), all(hasattr(event, name) for name in EVENTS)],
        "runtime": sorted(runtime & {"cudaHostRegister", "cudaHostUnregister"}),
        "properties": sorted(name for name in PROPERTIES if hasattr(classes._CudaDeviceProperties, name)),
        "is_of_this_torch": NvidiaAccelerators().is_of_this_torch(),
        "here": vendor_here(),
    }


if __name__ == "__main__":
    found = {"called": called(), "cuda": of_the_build_for_cuda() if torch.version.cuda is not None else None}
    print(json.dumps(found))
