"""The edge of NVML for tests: an object with the part of module pynvml that the probe calls, and devices to break."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml


def _not_found(*arguments: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class FakeNvml:
    """Answers like pynvml 13 on a host with `devices` GPUs; `failures[(function, index)]` is raised instead.

    Constants and classes are pynvml's own.
    """

    def __init__(self, devices: int = 2) -> None:
        self.devices = devices
        self.failures: dict[tuple[str, int | None], type[pynvml.NVMLError]] = {}
        self.calls: list[str] = []
        self.running = 0
        self.reasons = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonHwThermalSlowdown
        self.energy_mj = 5_000
        self.processes: dict[int, list[int]] = {}  # device: pids
        self.told_of: list[int] = []  # devices whose events are told
        self.fabric: dict[str, int] | None = None  # fields of each device's; None: the driver has no such function

    def _fill_fabric(self, handle: int, info: Any) -> int:
        for name, value in (self.fabric or {}).items():
            setattr(info._obj, name, value)
        return 0

    def fail(self, function: str, code: int, index: int | None = None) -> None:
        self.failures[function, index] = pynvml.NVMLError(code)

    def nvmlInit(self) -> None:  # noqa: N802
        if ("nvmlInit", None) in self.failures:
            raise self.failures["nvmlInit", None]
        self.running += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.running -= 1

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or not callable(getattr(pynvml, name, _not_found)):
            return getattr(pynvml, name)
        answers: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetCount": lambda: self.devices,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlSystemGetDriverVersion": lambda: "580.95.05",
            "nvmlSystemGetNVMLVersion": lambda: "13.580.95.05",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
            "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle:08x}",
            "nvmlDeviceGetVbiosVersion": lambda handle: "96.00.CF.00.01",
            "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=b"00000000:1B:00.0"),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 1980,
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=93, memory=41),
            "nvmlDeviceGetMemoryInfo": lambda handle, version=None: SimpleNamespace(
                used=(7 if version else 8) << 30, total=141 << 30
            ),
            "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
            "nvmlDeviceGetPowerUsage": lambda handle: 512_345 + handle,
            "nvmlDeviceGetClockInfo": lambda handle, clock: {pynvml.NVML_CLOCK_SM: 1755, pynvml.NVML_CLOCK_MEM: 3201}[
                clock
            ],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: self.reasons,
            "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 3 if kind == 0 else 0,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
                SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in self.processes.get(handle, ())
            ],
            "nvmlEventSetCreate": lambda: "events",
            "nvmlDeviceRegisterEvents": lambda handle, types, events: self.told_of.append(handle),
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: self.energy_mj * (handle + 1),
        }
        if self.fabric is not None:
            answers["nvmlDeviceGetGpuFabricInfoV"] = self._fill_fabric
        if name not in answers:  # as pynvml answers where the driver's library has no such function
            answers[name] = _not_found

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            index = arguments[0] if arguments else None
            for key in ((name, None), (name, index), ("every call", index)):
                if key in self.failures and (key[0] != "every call" or index is not None):
                    raise self.failures[key]
            return answers[name](*arguments)

        call.__name__ = name
        return call
