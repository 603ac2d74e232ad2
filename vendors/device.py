"""Defines how ranks use the accelerators of one vendor: torch's module of their type, and what that module lacks.

Ranks alone import this: it needs torch. torch's modules of devices (torch.cuda, torch.xpu, torch.npu) share most of
their names, so that a vendor says only what is its own.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch.profiler import ProfilerActivity

Capability = tuple[int, int]


class Accelerators:
    """The accelerators of one vendor that this process sees. Units: bytes; a capability is (major, minor).

    library: the communication library's name in records. kernels: by name, the least capability of a device on which
    it runs; a name that is not here does not run on this vendor's devices. library_kernels: what the library's kernels
    are called in a profile, in lower case. splits: whether the library makes groups by splitting the world's. groups:
    whether it launches several calls as one. leaves_open: whether a rank that failed may leave without closing its
    group, which would wait for kernels whose peers may never come. has_graphs: whether operations can be captured.
    tf32: whether products of float32 may be computed in TF32.
    """

    library = ""
    kernels: ClassVar[Mapping[str, Capability]] = {}
    library_kernels: tuple[str, ...] = ()
    splits = False
    groups = False
    leaves_open = False
    has_graphs = False
    tf32 = False

    def __init__(self, kind: str, plugin: str = "") -> None:
        """kind: torch's name of the type. plugin: the module that makes it known to torch.

        Raises:
            ImportError: the plug-in is not installed.
        """
        if plugin:
            importlib.import_module(plugin)
        self.kind = kind
        self.module: Any = torch.get_device_module(kind)

    def is_of_this_torch(self) -> bool:
        """Whether this build of torch is one for the vendor's devices."""
        return True

    def count(self) -> int:
        """How many devices this process sees."""
        return int(self.module.device_count())

    def take(self, device: torch.device) -> None:
        """Make the device this process's own."""
        self.module.set_device(device)

    def name(self, device: torch.device) -> str:
        """The driver's name of the device."""
        return str(self.module.get_device_name(device))

    def capability(self, device: torch.device) -> Capability:
        """The device's capability; (0, 0) where the vendor has no such number."""
        found = getattr(self.module, "get_device_capability", None)
        told = found(device) if found is not None else None
        return (int(told[0]), int(told[1])) if isinstance(told, tuple) else (0, 0)

    def versions(self) -> dict[str, str]:
        """Versions of the vendor's libraries by name."""
        return {}

    def pci_address(self, index: int) -> str:
        """Domain, bus and device, as 0000:1b:00; empty where torch does not tell."""
        found: Any = self.module.get_device_properties(index)
        if not hasattr(found, "pci_bus_id"):
            return ""
        return f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}"

    def synchronize(self, device: torch.device | None = None) -> None:
        """Wait until a device, by default the current one, has done all that was queued."""
        self.module.synchronize(device)

    def event(self) -> Any:
        """An event that knows its time (see device_events.TimedEvent)."""
        return self.module.Event(enable_timing=True)

    def stream(self, priority: int = 0) -> Any:
        """A new stream of the current device; a lower number is a higher priority."""
        return self.module.Stream(priority=priority)

    def beside(self, stream: Any) -> contextlib.AbstractContextManager[object]:
        """Within it the stream is the current one."""
        found: contextlib.AbstractContextManager[object] = self.module.stream(stream)
        return found

    def peak_memory(self, device: torch.device) -> int:
        """The most bytes that this process had allocated at a time."""
        return int(self.module.max_memory_allocated(device))

    def forget_peak(self, device: torch.device) -> None:
        """Count the most bytes from now on, where torch can."""
        forget = getattr(self.module, "reset_peak_memory_stats", None)
        if forget is not None:
            forget(device)

    def free_memory(self, device: torch.device) -> int:
        """Bytes that nobody has."""
        return int(self.module.mem_get_info(device)[0])

    def total_memory(self, device: torch.device) -> int:
        """Bytes that the device has."""
        return int(self.module.get_device_properties(device).total_memory)

    def give_back(self) -> None:
        """Give cached memory back to the devices."""
        self.module.empty_cache()

    def cache_bytes(self, device: torch.device) -> int:
        """Bytes of the device's last cache; 0 where torch does not tell."""
        return int(getattr(self.module.get_device_properties(device), "L2_cache_size", 0))

    def multiprocessors(self, device: torch.device) -> int:
        """How many multiprocessors the device has; 0 where torch does not tell."""
        return int(getattr(self.module.get_device_properties(device), "multi_processor_count", 0))

    def random_state(self, device: torch.device) -> torch.Tensor:
        """The state of the device's generator, uint8 of shape (bytes,) on the host."""
        found: torch.Tensor = self.module.get_rng_state(device)
        return found

    def set_random_state(self, state: torch.Tensor, device: torch.device) -> None:
        """The inverse of `random_state`."""
        self.module.set_rng_state(state, device)

    def seed(self) -> int:
        """The seed of the current device's generator."""
        return int(self.module.initial_seed())

    def busy(self, cycles: int) -> Callable[[], None] | None:
        """A function that queues so many cycles in which the device does nothing; None where there is none."""
        sleep = getattr(self.module, "_sleep", None)
        return None if sleep is None else lambda: sleep(cycles)

    def captured(self, operation: Callable[[], None]) -> Callable[[], None]:
        """The operation, captured once, as the replay of a graph, where the vendor `has_graphs`."""
        raise NotImplementedError(f"devices of type {self.kind} have no graphs")

    def against(self, kernel: str, device: torch.device, capability: Capability | None = None) -> str | None:
        """The reason why a kernel of this name does not run on the device; None if it does.

        `capability`: the device's, which is asked for it unless given.
        """
        least = self.kernels.get(kernel)
        if least is None:
            return f"there is no {kernel} for devices of type {self.kind}"
        found = self.capability(device) if capability is None else capability
        wanted, had = (".".join(map(str, each)) for each in (least, found))
        return None if found >= least else f"needs compute capability {wanted}, found {had}"

    def add_exactly(self) -> None:
        """Have products of 16-bit numbers add in 32 bits, where the vendor's kernels would not by default."""

    def set_tf32(self, allowed: bool) -> None:
        """Let products of float32 be computed in TF32, or not; without effect where there is none."""

    def fp8_refusal(self, device: torch.device) -> str | None:
        """Why the device has no units for 8-bit floating point, None if it has."""
        return f"{self.name(device)} is not known to have units for 8-bit floating point"

    def fp8_dtype(self, device: torch.device) -> torch.dtype:
        """The type of the device's 8-bit floating point with 4 bits of exponent."""
        return torch.float8_e4m3fn

    def page_locked(self, tensor: torch.Tensor) -> contextlib.AbstractContextManager[None]:
        """Within it the host's memory of the tensor is locked where it lies, as far as the vendor can."""
        return contextlib.nullcontext()

    def reaches(self, device: torch.device, peer: torch.device) -> bool:
        """Whether a device has access to the memory of a peer."""
        asked = getattr(self.module, "can_device_access_peer", None)
        return asked is not None and bool(asked(device, peer))

    def sensors(self, device: torch.device) -> dict[str, float]:
        """Clock in MHz, power in W and temperature in degrees Celsius under load, those that torch tells."""
        return {}

    def activity(self) -> ProfilerActivity:
        """The profiler's activity of the devices."""
        found: ProfilerActivity = getattr(ProfilerActivity, self.kind.upper(), ProfilerActivity.PrivateUse1)
        return found

    def remember_memory(self, entries: int | None) -> None:
        """Record the last `entries` allocations from now on, or end it with None."""

    def dump_memory(self, path: str) -> bool:
        """Write the recorded allocations; False where the vendor's torch records none."""
        return False


class PluggedIn(Accelerators):
    """Devices that a plug-in makes known to torch, with a library of their own between them, `library`."""

    leaves_open = True

    def __init__(self, kind: str, plugin: str, library: str) -> None:
        super().__init__(kind, plugin)
        self.library = library
        self.library_kernels = (library,)
