"""Reads NVIDIA GPUs through NVML: one library handle for the whole run, no process per sample."""

import contextlib
import ctypes
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vendors.base import (
    AcceleratorHealth,
    AcceleratorProbe,
    AcceleratorProcess,
    AcceleratorSample,
    PcieGenerations,
    ProbeUnavailable,
)

T = TypeVar("T")
MOST_EVENTS = 1000

# NVML's constants nvmlClocksEventReason* (nvml.h, "nvmlClocksEventReasons"), by their common names.
_REASONS = {
    "gpu_idle": 0x001, "applications_clocks_setting": 0x002, "sw_power_cap": 0x004, "hw_slowdown": 0x008,
    "sync_boost": 0x010, "sw_thermal_slowdown": 0x020, "hw_thermal_slowdown": 0x040, "hw_power_brake_slowdown": 0x080,
    "display_clock_setting": 0x100,
}  # fmt: skip

# NVML's fields NVML_FI_DEV_NVLINK_COUNT_* of errors (nvml.h: from Blackwell on, whose links have none of the older
# counters): neither what forward error correction mended, nor the sum of recoveries.
_LINK_ERRORS = (
    "MALFORMED_PACKET_ERRORS", "BUFFER_OVERRUN_ERRORS", "RCV_ERRORS", "RCV_REMOTE_ERRORS", "RCV_GENERAL_ERRORS",
    "LOCAL_LINK_INTEGRITY_ERRORS", "XMIT_DISCARDS", "LINK_RECOVERY_SUCCESSFUL_EVENTS", "LINK_RECOVERY_FAILED_EVENTS",
    "EFFECTIVE_ERRORS", "SYMBOL_ERRORS",
)  # fmt: skip
_WHOLE_NUMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal"}
"""By nvmlValueType_t, the member of a field's value."""

# Bits of NVML's health mask of a fabric (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*): shift, width as a mask, and from which
# value up to which it is bad. A value of 0 is not told.
_FABRIC_HEALTH = {
    "fabric_degraded": [(0, 0x3, 1, 1)],
    "fabric_recovering": [(2, 0x3, 1, 1), (6, 0x3, 1, 1)],
    "fabric_unhealthy": [(4, 0x3, 1, 1)],
    "fabric_misconfigured": [(8, 0xF, 2, 0xF)],
}


def open_nvml_probe() -> AcceleratorProbe:
    """The probe of this host.

    Raises:
        ProbeUnavailable: the library, the driver or every device is missing.
    """
    try:
        import pynvml
    except ImportError as error:
        raise ProbeUnavailable(f"Python package nvidia-ml-py is not installed: {error}") from error
    return NvmlProbe(pynvml)


def throttle_names(mask: int) -> list[str]:
    """Names of the bits set in NVML's mask of clock event reasons; an unknown bit reads `unknown_0x...`."""
    names = [name for name, bit in _REASONS.items() if mask & bit]
    rest = mask & ~sum(_REASONS.values())
    return [*names, f"unknown_{rest:#x}"] if rest else names


class NvmlProbe:
    """All GPUs that NVML shows on this host or in this container; CUDA_VISIBLE_DEVICES does not hide any from it.

    Args:
        nvml: the module `pynvml` of nvidia-ml-py.

    Raises:
        ProbeUnavailable: NVML does not start or sees no device.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._without: set[tuple[int, str]] = set()
        self._pcie_generations = PcieGenerations()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise ProbeUnavailable(f"NVML does not start: {error}") from error
        self._handles: dict[int, Any] = {}
        try:
            self._take_handles()
        except nvml.NVMLError as error:
            nvml.nvmlShutdown()
            raise ProbeUnavailable(f"NVML does not give its devices: {error}") from error
        if not self._handles:
            nvml.nvmlShutdown()
            raise ProbeUnavailable("NVML runs but shows no device that this process may use")
        self._xids: dict[int, dict[str, int]] = {index: {} for index in self._handles}
        self._events = self._event_set()
        for index in self._handles:
            self._register(index)

    def _take_handles(self) -> None:
        """A device that does not give its handle, as one does that fell off the bus, gets None and is asked again.

        NVML counts those, too, that a job's control group hides: they are left out.
        """
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                self._handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError_NoPermission:
                continue
            except nvml.NVMLError:
                self._handles[index] = None

    def _handle(self, index: int) -> Any:
        if self._handles[index] is None:
            self._handles[index] = self._nvml.nvmlDeviceGetHandleByIndex(index)
            self._register(index)
        return self._handles[index]

    def _event_set(self) -> Any:
        """The event set that gets the devices' XIDs; None if the driver has no events."""
        try:
            return self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError:
            return None

    def _register(self, index: int) -> None:
        """Have the XIDs of a device told, once it has its handle."""
        nvml, handle = self._nvml, self._handles[index]
        if self._events is not None and handle is not None:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def describe(self) -> dict[str, Any]:
        """Driver, NVML and CUDA versions of the driver; each device's identity and power limit in watts."""
        nvml = self._nvml
        cuda = self._optional(-1, "cuda driver version", nvml.nvmlSystemGetCudaDriverVersion_v2)
        return {
            "driver": self._optional(-1, "driver version", nvml.nvmlSystemGetDriverVersion),
            "nvml": self._optional(-1, "nvml version", nvml.nvmlSystemGetNVMLVersion),
            "cuda_driver": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "devices": [self._describe_device(index) for index in self._handles],
        }

    def _describe_device(self, index: int) -> dict[str, Any]:
        try:
            return self._identity(index)
        except self._nvml.NVMLError as error:
            return {"index": index, "error": f"NVML: {error}"}

    def _identity(self, index: int) -> dict[str, Any]:
        nvml = self._nvml
        memory = self._read(index, nvml.nvmlDeviceGetMemoryInfo)
        limit = self._read(index, nvml.nvmlDeviceGetEnforcedPowerLimit)
        pci = self._read(index, nvml.nvmlDeviceGetPciInfo)
        return {
            "index": index,
            "name": self._read(index, nvml.nvmlDeviceGetName),
            "uuid": self._read(index, nvml.nvmlDeviceGetUUID),
            "memory_bytes": None if memory is None else memory.total,
            "power_limit_w": None if limit is None else limit / 1000,
            "pci_bus_id": None if pci is None else _text(pci.busId),
            "vbios": self._read(index, nvml.nvmlDeviceGetVbiosVersion),
            "max_sm_clock_mhz": self._read(index, nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        }

    def sample(self) -> list[AcceleratorSample]:
        """One sample per device. A device that fails (fell off the bus, reset) gives a sample with `error` alone."""
        samples = []
        for index in self._handles:
            try:
                samples.append(self._sample_device(index))
            except self._nvml.NVMLError as error:
                samples.append(AcceleratorSample(index=index, error=f"NVML: {error}"))
        return samples

    def _sample_device(self, index: int) -> AcceleratorSample:
        nvml = self._nvml
        read = functools.partial(self._read, index)
        utilization = read(nvml.nvmlDeviceGetUtilizationRates)
        self._pcie_generations.note_use(index, None if utilization is None else float(utilization.gpu))
        # The second version leaves out what the driver keeps for itself (616 MiB of an idle H200), as nvidia-smi does.
        memory = read(nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlMemory_v2) or read(nvml.nvmlDeviceGetMemoryInfo)
        power_mw = read(nvml.nvmlDeviceGetPowerUsage)
        reasons = read(nvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:  # drivers before 535 know the same mask by its older name
            reasons = read(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        ecc = functools.partial(read, nvml.nvmlDeviceGetTotalEccErrors)
        return AcceleratorSample(
            index=index,
            utilization_percent=None if utilization is None else float(utilization.gpu),
            memory_used_bytes=None if memory is None else memory.used,
            memory_total_bytes=None if memory is None else memory.total,
            temperature_c=read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            sm_clock_mhz=read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            throttle_reasons=None if reasons is None else throttle_names(reasons),
            ecc_corrected=ecc(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC),
            ecc_uncorrected=ecc(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
        )

    def processes(self) -> list[AcceleratorProcess] | None:
        """Compute processes of all devices; None if the driver lists none for lack of permission."""
        found: list[AcceleratorProcess] = []
        known = False
        for index in self._handles:
            try:
                listed = self._read(index, self._nvml.nvmlDeviceGetComputeRunningProcesses)
            except self._nvml.NVMLError:
                continue  # sample() reports the device
            known |= listed is not None
            found += [
                AcceleratorProcess(device=index, pid=each.pid, memory_bytes=each.usedGpuMemory) for each in listed or ()
            ]
        return found if known else None

    def energy_joules(self) -> Mapping[int, float] | None:
        """NVML's total energy (mJ since the driver was loaded; Volta and newer) in joules, by device that has it."""
        energies = {}
        for index in self._handles:
            try:
                millijoules = self._read(index, self._nvml.nvmlDeviceGetTotalEnergyConsumption)
            except self._nvml.NVMLError:
                continue  # sample() reports the device
            if millijoules is not None:
                energies[index] = millijoules / 1000
        return energies or None

    def health(self) -> list[AcceleratorHealth]:
        """Error counters and states of each device; XIDs since the probe was opened."""
        self._take_events()
        found = []
        for index in self._handles:
            try:
                found.append(self._health_of(index))
            except self._nvml.NVMLError as error:
                xids = self._xids[index]
                found.append(AcceleratorHealth(index=index, counts=dict(xids), error=f"NVML: {error}"))
        return found

    def _take_events(self) -> None:
        """Take all events that wait: each has its device's handle and, as data, the XID."""
        nvml = self._nvml
        for _ in range(MOST_EVENTS if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
            except nvml.NVMLError:  # none is left (a timeout), or the driver has lost a device
                return
            asked = functools.partial(nvml.nvmlDeviceGetIndex, event.device)
            index = self._optional(-1, "index of an event's device", asked)
            if index is not None:
                name = f"xid_{event.eventData}"
                self._xids[index][name] = self._xids[index].get(name, 0) + 1

    def _health_of(self, index: int) -> AcceleratorHealth:
        nvml = self._nvml
        read = functools.partial(self._read, index)
        ecc = read(nvml.nvmlDeviceGetTotalEccErrors, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        up, down, errors = self._nvlinks(index)
        rows = read(nvml.nvmlDeviceGetRemappedRows)
        mig = read(nvml.nvmlDeviceGetMigMode)
        counts = {
            "ecc_uncorrected": ecc,
            "nvlink_errors": errors,
            "pcie_replays": read(nvml.nvmlDeviceGetPcieReplayCounter),
        }
        states = {
            "rows_pending": None if rows is None else int(rows[2]),
            "rows_failed": None if rows is None else int(rows[3]),
            "nvlinks_up": up,
            "nvlinks_down": down,
            "pcie_width": read(nvml.nvmlDeviceGetCurrPcieLinkWidth),
            "pcie_width_max": read(nvml.nvmlDeviceGetMaxPcieLinkWidth),
            "pcie_generation": self._pcie_generation(index),
            "pcie_generation_max": read(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
            "mig": None if mig is None else int(mig[0]),
            "slowdown_c": read(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        }
        states |= self._fabric(index)
        return AcceleratorHealth(
            index=index,
            counts={name: count for name, count in counts.items() if count is not None} | self._xids[index],
            states={name: state for name, state in states.items() if state is not None},
        )

    def _nvlinks(self, index: int) -> tuple[int | None, int | None, int | None]:
        """Links that are up and down, and the sum of their error counters; None for a device without NVLink."""
        nvml = self._nvml
        states = []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            state = self._link(index, link)
            if state is None:
                break
            states.append(state)
        if not states:
            return None, None, None
        counted = [self._link_errors(index, link) for link, state in enumerate(states) if state]
        known = [count for counts in counted for count in counts]
        return sum(states), len(states) - sum(states), sum(known) if known else None

    def _link_errors(self, index: int, link: int) -> list[int]:
        """The values of a link's counters of errors, of those that the driver knows."""
        nvml = self._nvml
        older = [
            self._read(index, nvml.nvmlDeviceGetNvLinkErrorCounter, link, counter)
            for counter in range(nvml.NVML_NVLINK_ERROR_COUNT)
        ]
        newer = self._optional(index, f"errors of link {link}", lambda: self._link_fields(index, link)) or []
        return [*(count for count in older if count is not None), *newer]

    def _link_fields(self, index: int, link: int) -> list[int]:
        nvml = self._nvml
        fields = [(getattr(nvml, f"NVML_FI_DEV_NVLINK_COUNT_{name}"), link) for name in _LINK_ERRORS]
        values = nvml.nvmlDeviceGetFieldValues(self._handle(index), fields)
        told = [each for each in values if each.nvmlReturn == nvml.NVML_SUCCESS and each.valueType in _WHOLE_NUMBERS]
        if not told:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return [getattr(each.value, _WHOLE_NUMBERS[each.valueType]) for each in told]

    def _pcie_generation(self, index: int) -> int | None:
        ask = functools.partial(self._read, index, self._nvml.nvmlDeviceGetCurrPcieLinkGeneration)
        return self._pcie_generations.highest(index, ask)

    def _fabric(self, index: int) -> dict[str, int]:
        """States of the device's part in the fabric of its NVLinks; empty if it has none, or the driver is too old."""
        nvml, info = self._nvml, self._nvml.c_nvmlGpuFabricInfoV_t()

        def ask() -> Any:
            return nvml.nvmlDeviceGetGpuFabricInfoV(self._handle(index), ctypes.byref(info))

        try:
            told = self._optional(index, "fabric", ask)
        except nvml.NVMLError:  # another version of the structure
            told = None
        is_joined = info.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED
        lacks_it = info.state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
        if told is None or lacks_it or (is_joined and info.status == nvml.NVML_ERROR_NOT_SUPPORTED):
            return {}
        return {
            "fabric_waits": int(not is_joined),
            "fabric_failed": info.status if is_joined else 0,  # nvml.h: it counts only then
        } | _fabric_health(info.healthMask)

    def _link(self, index: int, link: int) -> int | None:
        """1: up, 0: down; None: the device has no such link."""
        nvml = self._nvml
        try:
            return self._read(index, nvml.nvmlDeviceGetNvLinkState, link)
        except nvml.NVMLError_InvalidArgument:
            return None

    def close(self) -> None:
        """Releases NVML."""
        if self._events is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        self._nvml.nvmlShutdown()

    def _read(self, index: int, function: Callable[..., T], *arguments: Any) -> T | None:
        key = " ".join([function.__name__, *map(str, arguments)])
        return self._optional(index, key, lambda: function(self._handle(index), *arguments))

    def _optional(self, index: int, key: str, call: Callable[[], T]) -> T | None:
        """The call's answer, None if the device has none; a call that failed is not repeated at later samples."""
        nvml = self._nvml
        if (index, key) in self._without:
            return None
        try:
            return call()
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NoPermission):
            self._without.add((index, key))
            return None


def _fabric_health(mask: int) -> dict[str, int]:
    found = {}
    for name, parts in _FABRIC_HEALTH.items():
        values = ((mask >> shift & width, least, most) for shift, width, least, most in parts)
        found[name] = max(value if least <= value <= most else 0 for value, least, most in values)
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
