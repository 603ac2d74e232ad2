"""The NVML probe against the edge of pynvml; on a host without a driver also against the real one."""

import ctypes

import pynvml
import pytest

from tests.vendors.fake_nvml import FakeNvml
from vendors import ProbeUnavailable, load
from vendors.nvidia.probe import NvmlProbe, throttle_names


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def test_one_sample_a_device_in_the_units_of_the_names() -> None:
    probe = NvmlProbe(FakeNvml(devices=2))
    first, second = probe.sample()
    assert (first.index, second.index) == (0, 1)
    assert first.utilization_percent == 93.0
    assert (first.memory_used_bytes, first.memory_total_bytes) == (7 << 30, 141 << 30)
    assert first.temperature_c == 61
    assert first.power_w == pytest.approx(512.345)
    assert second.power_w == pytest.approx(512.346)
    assert (first.sm_clock_mhz, first.memory_clock_mhz) == (1755, 3201)
    assert first.throttle_reasons == ["sw_power_cap", "hw_thermal_slowdown"]
    assert (first.ecc_corrected, first.ecc_uncorrected) == (3, 0)
    assert first.error is None


def test_what_the_device_lacks_is_none_and_asked_once() -> None:
    nvml = FakeNvml(devices=1)
    nvml.fail("nvmlDeviceGetTotalEccErrors", pynvml.NVML_ERROR_NOT_SUPPORTED)
    nvml.fail("nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_NO_PERMISSION)
    probe = NvmlProbe(nvml)
    for _ in range(3):
        (sample,) = probe.sample()
        assert sample.ecc_corrected is None
        assert sample.ecc_uncorrected is None
        assert sample.power_w is None
        assert sample.temperature_c == 61
    assert nvml.calls.count("nvmlDeviceGetPowerUsage") == 1
    assert nvml.calls.count("nvmlDeviceGetTotalEccErrors") == 2  # corrected and uncorrected are two questions
    assert nvml.calls.count("nvmlDeviceGetTemperature") == 3


def test_an_old_driver_gives_throttle_reasons_by_their_old_name() -> None:
    nvml = FakeNvml(devices=1)
    nvml.fail("nvmlDeviceGetCurrentClocksEventReasons", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    (sample,) = NvmlProbe(nvml).sample()
    assert sample.throttle_reasons == ["sw_power_cap", "hw_thermal_slowdown"]


def test_a_lost_device_says_so_and_the_others_go_on() -> None:
    nvml = FakeNvml(devices=2)
    probe = NvmlProbe(nvml)
    nvml.fail("every call", pynvml.NVML_ERROR_GPU_IS_LOST, index=0)
    lost, healthy = probe.sample()
    assert lost.error is not None
    assert "lost" in lost.error.lower()
    assert lost.temperature_c is None
    assert healthy.temperature_c == 61
    assert healthy.error is None
    assert probe.energy_joules() == {1: 10.0}
    described = probe.describe()["devices"]
    assert "lost" in described[0]["error"].lower()
    assert described[1]["uuid"] == "GPU-00000001"


def test_describe_names_driver_and_devices() -> None:
    described = NvmlProbe(FakeNvml(devices=1)).describe()
    assert described["driver"] == "580.95.05"
    assert described["cuda_driver"] == "13.0"
    (device,) = described["devices"]
    assert device["name"] == "NVIDIA H200"
    assert device["memory_bytes"] == 141 << 30
    assert device["power_limit_w"] == 700.0
    assert device["pci_bus_id"] == "00000000:1B:00.0"


def test_energy_is_joules_or_nothing() -> None:
    nvml = FakeNvml(devices=2)
    assert NvmlProbe(nvml).energy_joules() == {0: 5.0, 1: 10.0}
    nvml.fail("nvmlDeviceGetTotalEnergyConsumption", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert NvmlProbe(nvml).energy_joules() is None


BITS = {
    "fabric_degraded": ("DEGRADED_BW", pynvml.NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE),
    "fabric_recovering": ("ROUTE_RECOVERY", pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_TRUE),
    "fabric_unhealthy": ("ROUTE_UNHEALTHY", pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE),
    "fabric_misconfigured": (
        "INCORRECT_CONFIGURATION",
        pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_GPU_STATE_INVALID,
    ),
}
HEALTHY = {
    "DEGRADED_BW": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_FALSE,
    "ROUTE_RECOVERY": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_FALSE,
    "ROUTE_UNHEALTHY": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_FALSE,
    "ACCESS_TIMEOUT_RECOVERY": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_FALSE,
    "INCORRECT_CONFIGURATION": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE,
}


def fabric(state: int, status: int = 0, **health: int) -> dict[str, int]:
    """What the driver says of a GPU's part in its fabric."""
    shifts = {name: getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_{name}") for name in HEALTHY}
    mask = sum(value << shifts[name] for name, value in (HEALTHY | health).items())
    return {"state": state, "status": status, "healthMask": mask}


def fabric_states(told: dict[str, int] | None, nvml: FakeNvml | None = None) -> dict[str, int]:
    nvml = nvml or FakeNvml(devices=1)
    nvml.fabric = told
    (health,) = NvmlProbe(nvml).health()
    assert health.error is None and health.states is not None
    return {name: state for name, state in health.states.items() if name.startswith("fabric")}


def test_the_state_of_the_fabric_is_read_as_the_driver_s_own_module_lays_it_out() -> None:
    joined = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    sound = dict.fromkeys(("fabric_waits", "fabric_failed", *BITS), 0)
    assert fabric_states(fabric(joined)) == sound
    for state in (pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED, pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS):
        assert fabric_states(fabric(state, 999)) == sound | {"fabric_waits": 1}, "no status counts before"
    failed = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    assert fabric_states(fabric(joined, failed)) == sound | {"fabric_failed": failed}
    for name, (part, value) in BITS.items():
        bad = value if name == "fabric_misconfigured" else 1
        assert fabric_states(fabric(joined, **{part: value})) == sound | {name: bad}
    waits = {"ACCESS_TIMEOUT_RECOVERY": pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_TRUE}
    assert fabric_states(fabric(joined, **waits)) == sound | {"fabric_recovering": 1}


def test_a_device_without_a_fabric_has_no_state_of_one_and_is_no_failure() -> None:
    assert fabric_states(None) == fabric_states(fabric(pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED)) == {}
    joined, lacking = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, pynvml.NVML_ERROR_NOT_SUPPORTED
    assert fabric_states(fabric(joined, lacking)) == {}
    older = FakeNvml(devices=1)
    older.fail("nvmlDeviceGetGpuFabricInfoV", pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    assert fabric_states(fabric(joined), older) == {}


def test_no_device_is_unavailable_and_nvml_is_released() -> None:
    nvml = FakeNvml(devices=0)
    with pytest.raises(ProbeUnavailable, match="no device"):
        NvmlProbe(nvml)
    assert nvml.running == 0


def test_a_device_that_is_lost_before_the_monitor_starts_says_so_until_it_comes_back() -> None:
    nvml = FakeNvml(devices=2)
    nvml.fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_GPU_IS_LOST, index=0)
    probe = NvmlProbe(nvml)
    assert [sample.error for sample in probe.sample()] == ["NVML: GPU is lost", None]
    assert [health.error for health in probe.health()] == ["NVML: GPU is lost", None]
    assert [device.get("error") for device in probe.describe()["devices"]] == ["NVML: GPU is lost", None]
    assert probe.energy_joules() == {1: 10.0} and nvml.told_of == [1]
    nvml.failures.clear()
    assert [sample.error for sample in probe.sample()] == [None, None]
    assert nvml.told_of == [1, 0], "its XIDs, too"


def test_devices_that_a_job_may_not_use_are_left_out() -> None:
    nvml = FakeNvml(devices=3)
    nvml.fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_NO_PERMISSION, index=1)
    assert [(sample.index, sample.error) for sample in NvmlProbe(nvml).sample()] == [(0, None), (2, None)]


def test_no_device_that_may_be_used_is_unavailable_and_nvml_is_released() -> None:
    nvml = FakeNvml(devices=2)
    nvml.fail("nvmlDeviceGetHandleByIndex", pynvml.NVML_ERROR_NO_PERMISSION)
    with pytest.raises(ProbeUnavailable, match="no device that this process may use"):
        NvmlProbe(nvml)
    assert nvml.running == 0


def test_a_driver_that_does_not_count_its_devices_is_unavailable_and_nvml_is_released() -> None:
    nvml = FakeNvml(devices=2)
    nvml.fail("nvmlDeviceGetCount", pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(ProbeUnavailable, match="does not give its devices"):
        NvmlProbe(nvml)
    assert nvml.running == 0


def test_close_releases_nvml() -> None:
    nvml = FakeNvml()
    probe = NvmlProbe(nvml)
    assert nvml.running == 1
    probe.close()
    assert nvml.running == 0


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0, []),
        (0x1, ["gpu_idle"]),
        (0x48, ["hw_slowdown", "hw_thermal_slowdown"]),
        (0x1008, ["hw_slowdown", "unknown_0x1000"]),
    ],
)
def test_throttle_mask_decoded(mask: int, names: list[str]) -> None:
    assert throttle_names(mask) == names


def test_every_reason_nvml_knows_has_a_name() -> None:
    everything = throttle_names(pynvml.nvmlClocksEventReasonAll)
    assert not [name for name in everything if name.startswith("unknown")]
    assert len(everything) == pynvml.nvmlClocksEventReasonAll.bit_count()


@pytest.mark.skipif(_has_driver(), reason="this host has NVIDIA's driver")
def test_without_a_driver_the_reason_is_nvmls_own() -> None:
    with pytest.raises(ProbeUnavailable, match="NVML does not start: NVML Shared Library Not Found"):
        load("nvidia").open_probe()


@pytest.mark.skipif(not _has_driver(), reason="no NVIDIA driver here")
def test_real_devices_answer() -> None:
    probe = load("nvidia").open_probe()
    try:
        assert [sample.index for sample in probe.sample()] == [d["index"] for d in probe.describe()["devices"]]
        assert all(sample.error is None for sample in probe.sample())
    finally:
        probe.close()
