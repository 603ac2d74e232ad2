"""Reads AMD's accelerators through amdsmi, the Python module of ROCm's libamd_smi.

Units: amdsmi's reference, "Python API": memory in MiB, temperatures in degrees Celsius, power in watts, clocks in MHz,
energy in counts of `counter_resolution` microjoules; amdsmi.h: PCIe speed in MT/s, the highest in GT/s. A value that a
device lacks is "N/A", or an AmdSmiException.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vendors.base import (
    AcceleratorHealth,
    AcceleratorProcess,
    AcceleratorSample,
    PcieGenerations,
    ProbeUnavailable,
)

_MIB = 1 << 20
_MOST_WATTS = 100_000
_GENERATIONS = {64: 6, 32: 5, 16: 4, 8: 3, 5: 2, 2: 1}
"""Of a PCIe link, by the least GT/s of a lane (PCI Express Base Specification)."""
# amdsmi_get_violation_status: what lowers the clocks now.
_THROTTLES = {
    "active_prochot_thrm": "processor hot",
    "active_ppt_pwr": "power",
    "active_socket_thrm": "socket temperature",
    "active_vr_thrm": "voltage regulator temperature",
    "active_hbm_thrm": "memory temperature",
}


class AmdProbe:
    """Reads AMD's accelerators through the library amdsmi."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._pcie_generations = PcieGenerations()
        try:
            library.amdsmi_init()
            self._handles = list(library.amdsmi_get_processor_handles())
        except library.AmdSmiException as error:
            raise ProbeUnavailable(f"amdsmi does not start: {error}") from error
        if not self._handles:
            self.close()
            raise ProbeUnavailable("amdsmi finds no AMD accelerator")

    def describe(self) -> dict[str, Any]:
        """The driver's version, and of each device its name, identity, PCI address and memory in bytes."""
        smi = self._library
        devices = [
            {
                "index": index,
                "name": self._value(smi.amdsmi_get_gpu_asic_info, handle, "market_name"),
                "uuid": self._asked(smi.amdsmi_get_gpu_device_uuid, handle),
                "pci": self._asked(smi.amdsmi_get_gpu_device_bdf, handle),
                "memory_bytes": self._memory(handle, "vram_total"),
                "power_limit_w": self._power_limit(handle),
            }
            for index, handle in enumerate(self._handles)
        ]
        driver = self._value(smi.amdsmi_get_gpu_driver_info, self._handles[0], "driver_version")
        return {"driver": driver or "", "devices": devices}

    def sample(self) -> list[AcceleratorSample]:
        """One sample per device, in index order."""
        return [self._sample(index, handle) for index, handle in enumerate(self._handles)]

    def energy_joules(self) -> Mapping[int, float] | None:
        """Energy by device index, in joules since an arbitrary start; None if no device counts it."""
        found = {}
        for index, handle in enumerate(self._handles):
            told = self._asked(self._library.amdsmi_get_energy_count, handle)
            if isinstance(told, dict) and told.get("energy_accumulator"):
                found[index] = told["energy_accumulator"] * told["counter_resolution"] / 1e6
        return found or None

    def processes(self) -> list[AcceleratorProcess] | None:
        """All processes on the devices, including other users'."""
        found = []
        for index, handle in enumerate(self._handles):
            for each in self._asked(self._library.amdsmi_get_gpu_process_list, handle) or ():
                memory = each.get("memory_usage", {}).get("vram_mem")
                found.append(AcceleratorProcess(device=index, pid=int(each["pid"]), memory_bytes=memory))
        return found

    def health(self) -> list[AcceleratorHealth]:
        """The errors that each device counted, in index order."""
        return [self._health(index, handle) for index, handle in enumerate(self._handles)]

    def close(self) -> None:
        """Close the library."""
        self._library.amdsmi_shut_down()

    def _sample(self, index: int, handle: Any) -> AcceleratorSample:
        smi = self._library
        try:
            used = smi.amdsmi_get_gpu_vram_usage(handle)
        except smi.AmdSmiException as error:
            return AcceleratorSample(index=index, error=str(error))
        hot = (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)
        power = smi.amdsmi_get_power_info
        clocks = [
            self._number(smi.amdsmi_get_clock_info, handle, "clk", kind)
            for kind in (smi.AmdSmiClkType.GFX, smi.AmdSmiClkType.MEM)
        ]
        ecc = smi.amdsmi_get_gpu_total_ecc_count
        used_percent = self._number(smi.amdsmi_get_gpu_activity, handle, "gfx_activity")
        self._pcie_generations.note_use(index, used_percent)
        return AcceleratorSample(
            index=index,
            utilization_percent=used_percent,
            memory_used_bytes=int(used["vram_used"]) * _MIB,
            memory_total_bytes=int(used["vram_total"]) * _MIB,
            temperature_c=_as_number(self._asked(smi.amdsmi_get_temp_metric, handle, *hot)),
            # MI300 and later tell the present power, earlier devices an average.
            power_w=self._number(power, handle, "current_socket_power")
            or self._number(power, handle, "average_socket_power"),
            sm_clock_mhz=_whole(clocks[0]),
            memory_clock_mhz=_whole(clocks[1]),
            throttle_reasons=self._throttles(handle),
            ecc_corrected=_whole(self._number(ecc, handle, "correctable_count")),
            ecc_uncorrected=_whole(self._number(ecc, handle, "uncorrectable_count")),
        )

    def _throttles(self, handle: Any) -> list[str] | None:
        told = self._asked(self._library.amdsmi_get_violation_status, handle)
        if not isinstance(told, dict):
            return None
        return [reason for name, reason in _THROTTLES.items() if told.get(name) is True]

    def _health(self, index: int, handle: Any) -> AcceleratorHealth:
        smi = self._library
        try:
            smi.amdsmi_get_gpu_vram_usage(handle)
        except smi.AmdSmiException as error:
            return AcceleratorHealth(index=index, error=str(error))
        told = self._asked(smi.amdsmi_get_pcie_info, handle)
        link = told if isinstance(told, dict) else {}
        counts = {
            "ecc_uncorrected": self._number(smi.amdsmi_get_gpu_total_ecc_count, handle, "uncorrectable_count"),
            "pcie_replays": _as_number(link.get("pcie_metric", {}).get("pcie_replay_count")),
        }
        pages = self._asked(smi.amdsmi_get_gpu_bad_page_info, handle)
        bad = [each["status"] for each in pages] if isinstance(pages, list) else []  # without any, a sentence comes
        limit = (smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CRITICAL)
        states = {
            **self._links(handle),
            "rows_pending": None if pages is None else float(smi.AmdSmiMemoryPageStatus.PENDING in bad),
            "rows_failed": None if pages is None else float(smi.AmdSmiMemoryPageStatus.UNRESERVABLE in bad),
            "pcie_width": _as_number(link.get("pcie_metric", {}).get("pcie_width")),
            "pcie_width_max": _as_number(link.get("pcie_static", {}).get("max_pcie_width")),
            "pcie_generation": self._pcie_generations.highest(
                index, lambda: _generation(link.get("pcie_metric", {}).get("pcie_speed"))
            ),
            "pcie_generation_max": _generation(link.get("pcie_static", {}).get("max_pcie_speed")),
            # As amd-smi's own "slowdown hotspot temperature"; a device without one tells 0.
            "slowdown_c": _as_number(self._asked(smi.amdsmi_get_temp_metric, handle, *limit)) or None,
        }
        return AcceleratorHealth(
            index=index,
            counts={name: int(value) for name, value in counts.items() if value is not None},
            states={name: int(value) for name, value in states.items() if value is not None},
        )

    def _links(self, handle: Any) -> dict[str, float]:
        """How many links to other devices are up, and down; a disabled one is neither."""
        told = self._value(self._library.amdsmi_get_gpu_xgmi_link_status, handle, "status")
        links = told if isinstance(told, list) else []
        counts: dict[str, float] = {"xgmi_links_up": links.count("U"), "xgmi_links_down": links.count("D")}
        return counts if any(counts.values()) else {}

    def _asked(self, question: Callable[..., Any], handle: Any, *more: Any) -> Any:
        """The answer; None where this device, driver or version of the library has none."""
        try:
            found = question(handle, *more)
        except (self._library.AmdSmiException, AttributeError):
            return None
        return None if found == "N/A" else found

    def _value(self, question: Callable[..., Any], handle: Any, key: str, *more: Any) -> Any:
        found = self._asked(question, handle, *more)
        told = found.get(key) if isinstance(found, dict) else None
        return None if told == "N/A" else told

    def _number(self, question: Callable[..., Any], handle: Any, key: str, *more: Any) -> float | None:
        return _as_number(self._value(question, handle, key, *more))

    def _power_limit(self, handle: Any) -> float | None:
        """In watts; the library's documents say W for 6.4 and 7.1, and uW for 7.13."""
        told = self._number(self._library.amdsmi_get_power_info, handle, "power_limit")
        return told / 1e6 if told is not None and told > _MOST_WATTS else told

    def _memory(self, handle: Any, key: str) -> int | None:
        found = self._number(self._library.amdsmi_get_gpu_vram_usage, handle, key)
        return None if found is None else int(found) * _MIB


def open_amd_probe() -> AmdProbe:
    """Open the accelerators of this host.

    Raises:
        ProbeUnavailable: amdsmi or the driver is missing, or there is no device.
    """
    try:
        import amdsmi  # type: ignore[import-not-found] # of ROCm; the head node has none
    except (ImportError, OSError, KeyError) as error:
        raise ProbeUnavailable(f"amdsmi, ROCm's Python module, does not import: {error}") from error
    return AmdProbe(amdsmi)


def _as_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _generation(speed: Any) -> int | None:
    """The generation of a PCIe link by its speed, in GT/s or MT/s; None if it is none."""
    told = _as_number(speed) or 0.0
    rate = told / 1000 if told >= 1000 else told
    return next((generation for least, generation in _GENERATIONS.items() if rate >= least), None)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
