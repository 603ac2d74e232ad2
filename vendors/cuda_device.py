"""Uses devices that torch calls cuda: NVIDIA's, and AMD's in a build of torch for ROCm."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from vendors.device import Accelerators


class CudaAccelerators(Accelerators):
    """The functions of torch.cuda beyond those of other devices: graphs, sensors, locked pages, a record of memory."""

    library_kernels = ("nccl",)
    splits = True
    groups = True
    leaves_open = True
    has_graphs = True

    def __init__(self) -> None:
        super().__init__("cuda")

    def versions(self) -> dict[str, str]:
        return {self.library: ".".join(map(str, self.module.nccl.version()))}

    def captured(self, operation: Callable[[], None]) -> Callable[[], None]:
        """The operation, captured as the replay of a graph. It runs first on a side stream, where the communication
        library opens its connections: inside a capture it could not.
        """
        stream = self.stream()
        stream.wait_stream(self.module.current_stream())
        with self.beside(stream):
            operation()
        self.module.current_stream().wait_stream(stream)
        self.synchronize()
        graph = self.module.CUDAGraph()
        with self.module.graph(graph):
            operation()
        replay: Callable[[], None] = graph.replay
        return replay

    @contextlib.contextmanager
    def page_locked(self, tensor: torch.Tensor) -> Iterator[None]:
        runtime: Any = self.module.cudart()
        size = tensor.numel() * tensor.element_size()
        self.module.check_error(int(runtime.cudaHostRegister(tensor.data_ptr(), size, 0)))
        try:
            yield
        finally:
            self.synchronize()
            self.module.check_error(int(runtime.cudaHostUnregister(tensor.data_ptr())))

    def add_exactly(self) -> None:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def sensors(self, device: torch.device) -> dict[str, float]:
        """Clock in MHz, power in W and temperature in degrees Celsius, for which torch asks NVML or amdsmi."""
        cuda = self.module
        readings: dict[str, tuple[Callable[..., int], float]] = {
            "clock_MHz": (cuda.clock_rate, 1),
            "power_W": (cuda.power_draw, 1000),
            "temperature_C": (cuda.temperature, 1),
        }
        found = {}
        for name, (read, unit) in readings.items():
            # Without the vendor's library torch has none of them, and a driver may lack one.
            with contextlib.suppress(ModuleNotFoundError, RuntimeError):
                found[name] = read(device) / unit
        return found

    def remember_memory(self, entries: int | None) -> None:
        if entries is None:
            self.module.memory._record_memory_history(enabled=None)
        else:
            self.module.memory._record_memory_history(max_entries=entries)

    def dump_memory(self, path: str) -> bool:
        self.module.memory._dump_snapshot(path)
        return True


class OtherCudaAccelerators(CudaAccelerators):
    """Devices of another vendor, with its `library` in the place of NCCL; `build` is in the version of its torch."""

    def __init__(self, library: str, build: str) -> None:
        super().__init__()
        self.library, self._build = library, build

    def is_of_this_torch(self) -> bool:
        return self._build in torch.__version__
