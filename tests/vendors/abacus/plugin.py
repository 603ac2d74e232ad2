"""Makes the device of device.cpp known to torch as torch.abacus, with a backend of the same name."""

import importlib.util
import os
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

NAME = "Abacus 3000"


def load() -> Any:
    """The compiled library that ABACUS_LIBRARY names."""
    spec = importlib.util.spec_from_file_location("abacus_device", os.environ["ABACUS_LIBRARY"])
    assert spec is not None and spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    return library


def module_of(library: Any) -> types.ModuleType:
    """torch.abacus: the names that modules of devices share."""
    accelerator, made = torch.accelerator, types.ModuleType("torch.abacus")

    def count() -> int:
        """Two, or with ABACUS_NODES as many as have a device node."""
        nodes = len([*Path("/dev").glob("abacus[0-9]*")]) if "ABACUS_NODES" in os.environ else 2
        return int(os.environ.get("ABACUS_DEVICES", nodes))

    def index_of(device: object = None) -> int:
        if device is None:
            return accelerator.current_device_index()
        found = torch.device("abacus", device) if isinstance(device, int) else torch.device(str(device))
        return accelerator.current_device_index() if found.index is None else found.index

    def numbered(device: torch.device | int) -> int:
        """As torch.cuda: set_device takes no device without a number."""
        index = device if isinstance(device, int) else device.index
        if index is None:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
        return index

    def generator(device: object = None) -> torch.Generator:
        found: torch.Generator = library.generator(index_of(device))
        return found

    def seed_all(seed: int) -> None:
        for index in range(count()):
            generator(index).manual_seed(seed)

    made.__dict__.update(
        _is_in_bad_fork=lambda: False,
        manual_seed_all=seed_all,
        manual_seed=lambda seed: generator().manual_seed(seed),
        initial_seed=lambda: generator().initial_seed(),
        get_rng_state=lambda device=None: generator(device).get_state(),
        set_rng_state=lambda state, device=None: generator(device).set_state(state),
        is_available=lambda: count() > 0,
        is_initialized=lambda: True,
        device_count=count,
        current_device=accelerator.current_device_index,
        set_device=lambda device: accelerator.set_device_index(numbered(device)),
        get_device_name=lambda device=None: NAME,
        get_device_properties=lambda device=None: types.SimpleNamespace(
            name=NAME, total_memory=accelerator.get_memory_info(index_of(device))[1]
        ),
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        synchronize=lambda device=None: accelerator.synchronize(index_of(device)),
        Event=lambda enable_timing=False: torch.Event("abacus", enable_timing=enable_timing),
        Stream=lambda priority=0: torch.Stream("abacus"),
        stream=lambda stream: stream,
        current_stream=lambda device=None: accelerator.current_stream(index_of(device)),
        max_memory_allocated=lambda device=None: accelerator.max_memory_allocated(index_of(device)),
        memory_allocated=lambda device=None: accelerator.memory_allocated(index_of(device)),
        mem_get_info=lambda device=None: accelerator.get_memory_info(index_of(device)),
        empty_cache=lambda: None,
        _sleep=library.sleep,
        counts=library.counts,
    )
    return made


def _backend(store: Any, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    made: dist.ProcessGroup = _LIBRARY.make_backend(dist.ProcessGroupGloo(store, rank, size, timeout))
    return made


_LIBRARY = load()
torch.utils.backend_registration.rename_privateuse1_backend("abacus")
torch._register_device_module("abacus", module_of(_LIBRARY))  # type: ignore[no-untyped-call]
torch.utils.backend_registration.generate_methods_for_privateuse1_backend()
dist.Backend.register_backend("abacus", _backend, devices=["abacus"])
