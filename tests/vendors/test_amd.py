"""AMD's probe and the order of its devices, on a library that says what amdsmi's reference documents."""

import enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vendors.amd import adapter
from vendors.amd.probe import AmdProbe, open_amd_probe
from vendors.base import HealthReader, ProbeUnavailable, ProcessLister


class AmdSmiException(Exception):  # noqa: N818 - amdsmi's name
    """As amdsmi raises it."""


class Clock(enum.IntEnum):
    GFX = 1
    MEM = 2


class Page(enum.IntEnum):
    RESERVED = 0
    PENDING = 1
    UNRESERVABLE = 2


def library(**answers: Any) -> Any:
    """amdsmi 7.0.2's functions, by its reference, of one device; `answers` take the place of some. An exception is
    raised, not returned.
    """

    def function(answer: Any) -> Any:
        def asked(*_: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer(*_) if callable(answer) else answer

        return asked

    told = {
        "amdsmi_init": None,
        "amdsmi_shut_down": None,
        "amdsmi_get_processor_handles": ["first"],
        "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_gpu_device_uuid": "a5ff74a1-0000-1000-80b8-0e5dcc9b4a6e",
        "amdsmi_get_gpu_device_bdf": "0000:05:00.0",
        "amdsmi_get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.16.6"},
        "amdsmi_get_gpu_vram_usage": {"vram_total": 196592, "vram_used": 283},
        "amdsmi_get_gpu_activity": {"gfx_activity": 97, "umc_activity": 40, "mm_activity": "N/A"},
        "amdsmi_get_temp_metric": lambda _, sensor, metric: {0: 61, 5: 100}[metric],
        "amdsmi_get_power_info": {"current_socket_power": 705, "average_socket_power": "N/A", "power_limit": 750},
        "amdsmi_get_clock_info": lambda _, kind: {"clk": {Clock.GFX: 2103, Clock.MEM: 1300}[kind], "max_clk": 2100},
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 3, "uncorrectable_count": 2, "deferred_count": 0},
        "amdsmi_get_energy_count": {"energy_accumulator": 1_000_000, "counter_resolution": 15.3, "timestamp": 1},
        "amdsmi_get_violation_status": {"active_ppt_pwr": True, "active_socket_thrm": False, "active_vr_thrm": "N/A"},
        "amdsmi_get_pcie_info": {
            "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32},
            "pcie_metric": {"pcie_width": 8, "pcie_speed": 16_000, "pcie_replay_count": 5},
        },
        "amdsmi_get_gpu_bad_page_info": [{"value": 1, "status": 1}],
        "amdsmi_get_gpu_xgmi_link_status": {"status": [*7 * "U", "X"], "total_links": 8},
        "amdsmi_get_gpu_process_list": [{"name": "python", "pid": 42, "memory_usage": {"vram_mem": 4096}}],
    } | answers
    return SimpleNamespace(
        AmdSmiException=AmdSmiException,
        AmdSmiClkType=Clock,
        AmdSmiMemoryPageStatus=Page,
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0, CRITICAL=5),
        **{name: function(answer) for name, answer in told.items()},
    )


def test_a_sample_has_the_units_of_all_vendors() -> None:
    probe = AmdProbe(library())
    (sample,) = probe.sample()
    assert (sample.utilization_percent, sample.temperature_c, sample.power_w) == (97, 61, 705)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (283 << 20, 196592 << 20)
    assert (sample.sm_clock_mhz, sample.memory_clock_mhz, sample.throttle_reasons) == (2103, 1300, ["power"])
    assert (sample.ecc_corrected, sample.ecc_uncorrected, sample.error) == (3, 2, None)
    energy = probe.energy_joules()
    assert energy is not None and energy[0] == pytest.approx(15.3)
    (device,) = probe.describe()["devices"]
    assert (device["name"], device["pci"], device["memory_bytes"]) == (
        "AMD Instinct MI300X",
        "0000:05:00.0",
        196592 << 20,
    )


def test_health_and_processes_are_told() -> None:
    probe = AmdProbe(library())
    assert isinstance(probe, HealthReader) and isinstance(probe, ProcessLister)
    (health,) = probe.health()
    assert health.counts == {"ecc_uncorrected": 2, "pcie_replays": 5}
    links = {"pcie_width": 8, "pcie_width_max": 16, "pcie_generation_max": 5, "xgmi_links_up": 7, "xgmi_links_down": 0}
    assert health.states == {"rows_pending": 1, "rows_failed": 0, "slowdown_c": 100} | links
    processes = probe.processes()
    assert processes is not None
    (process,) = processes
    assert (process.device, process.pid, process.memory_bytes) == (0, 42, 4096)


def test_the_generation_of_a_pcie_link_is_the_highest_while_the_device_worked() -> None:
    now = {"gfx_activity": 0, "pcie_speed": 2_500}

    def slot(_: object) -> dict[str, Any]:
        return {"pcie_static": {"max_pcie_speed": 32}, "pcie_metric": {"pcie_speed": now["pcie_speed"]}}

    probe = AmdProbe(library(amdsmi_get_pcie_info=slot, amdsmi_get_gpu_activity=lambda _: now))

    def told(used: int, speed: int) -> object:
        now.update(gfx_activity=used, pcie_speed=speed)
        probe.sample()
        (health,) = probe.health()
        return health.states and (health.states.get("pcie_generation"), health.states["pcie_generation_max"])

    answers = [told(*each) for each in ((0, 2_500), (97, 16_000), (0, 2_500), (97, 32_000), (97, 8_000))]
    assert answers == [(None, 5), (4, 5), (4, 5), (5, 5), (5, 5)]


@pytest.mark.parametrize("told", [[], "No bad pages found.", [{"status": Page.RESERVED}]])
def test_a_device_without_pages_to_retire_is_healthy_however_the_library_says_it(told: object) -> None:
    (health,) = AmdProbe(library(amdsmi_get_gpu_bad_page_info=told)).health()
    assert health.states is not None and (health.states["rows_pending"], health.states["rows_failed"]) == (0, 0)


@pytest.mark.parametrize(("told", "up_and_down"), [("UUUDUUDX", [5, 2]), ("DDDDDDDX", [0, 7]), ("X", []), ("", [])])
def test_links_that_are_up_and_down_are_counted_and_disabled_ones_are_none(told: str, up_and_down: list[int]) -> None:
    (health,) = AmdProbe(library(amdsmi_get_gpu_xgmi_link_status={"status": [*told]})).health()
    states = health.states or {}
    assert [states[name] for name in ("xgmi_links_up", "xgmi_links_down") if name in states] == up_and_down


@pytest.mark.parametrize("limit", [750, 750_000_000])
def test_a_limit_of_power_is_in_watts_in_each_version_of_the_library(limit: int) -> None:
    (device,) = AmdProbe(library(amdsmi_get_power_info={"power_limit": limit})).describe()["devices"]
    assert device["power_limit_w"] == 750


def test_what_a_device_does_not_tell_is_none_and_never_nought() -> None:
    gone = AmdSmiException("not supported")
    silent = ("activity", "total_ecc_count", "bad_page_info", "process_list", "xgmi_link_status")
    answers = dict.fromkeys((f"amdsmi_get_gpu_{name}" for name in silent), gone)
    others = ("temp_metric", "power_info", "clock_info", "energy_count", "violation_status", "pcie_info")
    answers |= dict.fromkeys((f"amdsmi_get_{name}" for name in others), gone)
    probe = AmdProbe(library(**answers))
    (sample,) = probe.sample()
    assert (sample.utilization_percent, sample.temperature_c, sample.power_w, sample.ecc_uncorrected) == (None,) * 4
    assert (sample.throttle_reasons, sample.error, probe.energy_joules()) == (None, None, None)
    (health,) = probe.health()
    assert (health.counts, health.states) == ({}, {})


def test_a_device_that_fell_off_the_bus_does_not_silence_the_others() -> None:
    def usage(handle: str) -> dict[str, int]:
        if handle == "second":
            raise AmdSmiException("device not found")
        return {"vram_total": 1, "vram_used": 0}

    probe = AmdProbe(library(amdsmi_get_processor_handles=["first", "second"], amdsmi_get_gpu_vram_usage=usage))
    assert [sample.error for sample in probe.sample()] == [None, "device not found"]
    assert [health.error for health in probe.health()] == [None, "device not found"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"amdsmi_init": AmdSmiException("driver not loaded")}, "amdsmi does not start: driver not loaded"),
        ({"amdsmi_get_processor_handles": []}, "amdsmi finds no AMD accelerator"),
    ],
)
def test_a_host_without_driver_or_device_says_so(answers: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProbeUnavailable, match=reason):
        AmdProbe(library(**answers))


def test_a_host_without_rocm_says_so() -> None:
    with pytest.raises(ProbeUnavailable, match="amdsmi, ROCm's Python module, does not import"):
        open_amd_probe()


def test_devices_have_the_order_of_the_kernel_s_nodes_without_its_processors(tmp_path: Path) -> None:
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, (simds, location) in enumerate([(0, 0), (1216, 0xC100), (1216, 0x0500)], start=8):
        folder = nodes / str(number)
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\nlocation_id {location}\ndomain 0\n")
    (nodes / "11").mkdir()
    (nodes / "11/properties").write_text("nonsense\n")
    assert list(adapter.devices(tmp_path)) == ["0000:c1:00.0", "0000:05:00.0"]
    assert adapter.devices(tmp_path / "none") == {}
