"""RAPL counters, IPMI readings and the accelerators' power, each against its edge: sysfs, a tool, a probe."""

import stat
import time
from pathlib import Path

import pytest

from monitors.accelerator import AcceleratorMeter, AcceleratorSampler
from monitors.ipmi import DEADLINE_S, PERIOD_S, IpmiError, IpmiMeter
from monitors.power import RaplMeter
from monitors.sampler import Unavailable
from tests.monitors.fake_probe import FakeProbe


class Clock:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def zone(root: Path, folder: str, name: str, energy_uj: int, wrap_uj: int = 1_000_000_000) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", wrap_uj)):
        (path / file).write_text(f"{value}\n")
    return path / "energy_uj"


def test_rapl_sums_packages_and_dram_only(tmp_path: Path) -> None:
    clock = Clock()
    counters = [
        zone(tmp_path, "intel-rapl:0", "package-0", 0),
        zone(tmp_path, "intel-rapl:1", "package-1", 0),
        zone(tmp_path, "intel-rapl:0:1", "dram", 0),
    ]
    for folder, name in (
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl:2:0", "dram"),
        ("intel-rapl-mmio:0", "package-0"),
    ):
        counters.append(zone(tmp_path, folder, name, 0))
    meter = RaplMeter(tmp_path, clock)
    clock.now += 2
    for counter in counters:
        counter.write_text("40000000\n")
    assert meter.sample() == {"meter": "rapl", "watts": 60.0, "joules": 120.0, "method": "counter"}


def test_rapl_counter_wraps(tmp_path: Path) -> None:
    clock = Clock()
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 90_000_000, wrap_uj=100_000_000)
    meter = RaplMeter(tmp_path, clock)
    clock.now += 1
    counter.write_text("15000000\n")
    assert meter.sample() == {"meter": "rapl", "watts": 25.0, "joules": 25.0, "method": "counter"}
    clock.now += 1
    counter.write_text("20000000\n")
    assert meter.sample() == {"meter": "rapl", "watts": 5.0, "joules": 30.0, "method": "counter"}


def test_a_failed_read_of_one_package_loses_no_energy(tmp_path: Path) -> None:
    clock = Clock()
    first = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 0)
    meter = RaplMeter(tmp_path, clock)
    clock.now += 1
    first.write_text("10000000")
    second.unlink()
    with pytest.raises(OSError):
        meter.sample()
    clock.now += 1
    first.write_text("20000000")
    second.write_text("30000000")
    values = meter.sample()
    assert values is not None
    assert (values["joules"], values["watts"]) == (50.0, 25.0)


def test_rapl_says_why_it_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="the kernel offers no"):
        RaplMeter(tmp_path / "none")
    with pytest.raises(Unavailable, match="shows no CPU package"):
        RaplMeter(tmp_path)
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    (tmp_path / "intel-rapl:0" / "max_energy_range_uj").unlink()
    with pytest.raises(Unavailable, match="max_energy_range_uj cannot be read"):
        RaplMeter(tmp_path)


def test_rapl_without_the_right_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    read_text = Path.read_text

    def refuse(path: Path, *arguments: str) -> str:
        if path == counter:  # root reads whatever the mode is, so the refusal cannot come from the file system
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path, *arguments)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(Unavailable, match="energy_uj may only be read by root"):
        RaplMeter(tmp_path)


@pytest.fixture
def ipmitool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the tool on PATH, to be written by the test; /dev has an IPMI device."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "ipmi0").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return tmp_path / "bin" / "ipmitool"


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


GOOD = """[ "$*" = "dcmi power reading" ] || exit 9
cat <<'END'

    Instantaneous power reading:                   412 Watts
    Minimum during sampling period:                  8 Watts
    Power reading state is:                   activated
END"""


def sample_when_there(meter: IpmiMeter) -> object:
    """Reads until the tool has ended; only then is there something to test."""
    for _ in range(1000):
        values = meter.sample()
        if values is not None:
            return values
        time.sleep(0.01)
    raise AssertionError("the reading never came")


def test_ipmi_reads_at_its_own_pace_and_integrates(ipmitool: Path, tmp_path: Path) -> None:
    program(ipmitool, GOOD)
    clock = Clock()
    meter = IpmiMeter(tmp_path / "dev", clock)
    assert sample_when_there(meter) == {"meter": "ipmi", "watts": 412.0, "joules": 0.0, "method": "integrated power"}
    program(ipmitool, GOOD.replace("412", "388"))
    assert meter.sample() is None, "the next reading is not due"
    clock.now += PERIOD_S
    assert sample_when_there(meter) == {
        "meter": "ipmi",
        "watts": 388.0,
        "joules": 400.0 * PERIOD_S,
        "method": "integrated power",
    }


def test_ipmi_that_hangs_is_killed_and_never_waited_for(ipmitool: Path, tmp_path: Path) -> None:
    program(ipmitool, "exec sleep 600")
    clock = Clock()
    meter = IpmiMeter(tmp_path / "dev", clock)
    assert meter.sample() is None
    clock.now += DEADLINE_S + 0.1
    with pytest.raises(Unavailable, match="was killed after its deadline"):
        sample_when_there(meter)


def test_a_controller_without_dcmi_is_unavailable(ipmitool: Path, tmp_path: Path) -> None:
    program(ipmitool, "echo 'DCMI request failed because: Invalid command (c1)' >&2; exit 1")
    meter = IpmiMeter(tmp_path / "dev")
    with pytest.raises(Unavailable, match=r"exit code 1, said: DCMI request failed .* \(c1\)"):
        sample_when_there(meter)


def test_a_failure_after_success_is_an_error_and_the_meter_goes_on(ipmitool: Path, tmp_path: Path) -> None:
    program(ipmitool, GOOD)
    clock = Clock()
    meter = IpmiMeter(tmp_path / "dev", clock)
    sample_when_there(meter)
    program(ipmitool, "exit 3")
    clock.now += PERIOD_S
    with pytest.raises(IpmiError, match="exit code 3, said: nothing"):
        sample_when_there(meter)
    program(ipmitool, GOOD)
    clock.now += PERIOD_S
    sample_when_there(meter)


def test_ipmi_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no IPMI device"):
        IpmiMeter(tmp_path)
    (tmp_path / "ipmi0").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(Unavailable, match="ipmitool is not installed"):
        IpmiMeter(tmp_path)


def test_accelerator_power_by_counter() -> None:
    sampler = AcceleratorSampler(FakeProbe, "x_monitor.log", deadline_s=5)
    meter = AcceleratorMeter(sampler)
    assert meter.sample() is None, "nothing was sampled yet"
    sampler.sample()
    sampler.sample()
    assert meter.sample() == {"meter": "accelerator", "watts": 300.0, "joules": 300.0, "method": "counter"}


def test_accelerator_power_integrated_where_there_is_no_counter() -> None:
    sampler = AcceleratorSampler(lambda: FakeProbe(counter=False), "x_monitor.log", deadline_s=5)
    meter = AcceleratorMeter(sampler)
    sampler.sample()
    first = meter.sample()
    assert first is not None
    assert (first["joules"], first["method"]) == (0.0, "integrated power")
    sampler.sample()
    second = meter.sample()
    assert second is not None
    assert second["joules"] >= 0.0


def test_a_lost_device_does_not_take_its_energy_back() -> None:
    probe = FakeProbe()
    sampler = AcceleratorSampler(lambda: probe, "x_monitor.log", deadline_s=5)
    meter = AcceleratorMeter(sampler)
    sampler.sample()
    probe.lost = 1
    sampler.sample()
    assert meter.sample() == {"meter": "accelerator", "watts": 100.0, "joules": 100.0 + 100.0, "method": "counter"}


def test_devices_that_do_not_know_their_power() -> None:
    sampler = AcceleratorSampler(lambda: FakeProbe(power=False), "x_monitor.log", deadline_s=5)
    sampler.sample()
    with pytest.raises(Unavailable, match="no device reports its power"):
        AcceleratorMeter(sampler).sample()
