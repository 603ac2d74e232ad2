"""RAPL counters, IPMI readings and the accelerators' power, each against its edge: sysfs, a tool, a probe."""

import ctypes
import errno
import struct
from pathlib import Path

import pytest

from monitors.accelerator import AcceleratorMeter, AcceleratorSampler
from monitors.ipmi import DEADLINE_S, PERIOD_S, IpmiDevice, IpmiError, IpmiMeter
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
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu vme\n")
    for root in (tmp_path / "none", tmp_path):
        with pytest.raises(Unavailable, match=r"kernel has no power counters of its CPUs \(/sys/class/powercap\)"):
            RaplMeter(root, cpuinfo=cpuinfo)
    cpuinfo.write_text("flags\t\t: fpu vme hypervisor\n")
    with pytest.raises(Unavailable, match="is a virtual machine without power counters"):
        RaplMeter(tmp_path, cpuinfo=cpuinfo)
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
    with pytest.raises(
        Unavailable,
        match=r"intel-rapl:0/energy_uj\) may not be read by this user: mode 0\d+, user \d+, group \d+; log in as root",
    ):
        RaplMeter(tmp_path)


class Controller:
    """A management controller's answers, given when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.answer: bytes | None = None
        self.closed = False

    def send(self, netfn: int, command: int, data: bytes) -> None:
        self.sent.append((netfn, command, data))
        self.answer = None

    def receive(self) -> bytes | None:
        return self.answer

    def close(self) -> None:
        self.closed = True


def reading(watts: int, *, active: bool = True) -> bytes:
    """Completion code, group, watts now, least, most and mean, time stamp, period, state (DCMI 1.5, 6.6.1)."""
    return struct.pack("<BBHHHHIIB", 0, 0xDC, watts, 8, 600, 400, 1_790_000_000, 1000, 0x40 * active)


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    """Of a machine whose device is below tmp_path."""
    (tmp_path / "ipmi0").touch()
    return Controller()


def meter_of(controller: Controller, dev: Path, clock: Clock) -> IpmiMeter:
    meter = IpmiMeter(dev, clock, lambda _path: controller)
    assert meter.sample() is None and len(controller.sent) == 1
    return meter


def test_ipmi_reads_at_its_own_pace_and_integrates(controller: Controller, tmp_path: Path) -> None:
    clock = Clock()
    meter = meter_of(controller, tmp_path, clock)
    assert controller.sent == [(0x2C, 0x02, bytes((0xDC, 1, 0, 0)))]
    assert meter.sample() is None, "the answer has not come"
    controller.answer = reading(412)
    assert meter.sample() == {"meter": "ipmi", "watts": 412.0, "joules": 0.0, "method": "integrated power"}
    assert meter.sample() is None and len(controller.sent) == 1, "the next reading is not due"
    clock.now += PERIOD_S
    assert meter.sample() is None and len(controller.sent) == 2
    controller.answer = reading(388)
    expected = {"meter": "ipmi", "watts": 388.0, "joules": 400.0 * PERIOD_S, "method": "integrated power"}
    assert meter.sample() == expected
    meter.close()
    assert controller.closed


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"\xc1", "completion code c1: it has no DCMI power readings"),
        (b"\x00\xdd" + bytes(17), "none to a DCMI command: 00dd"),
        (b"\x00\xdc\x01", "none to a DCMI command: 00dc01"),
        (reading(412, active=False), "its power measurement is switched off"),
        (None, "no answer within 4 s"),
    ],
)
def test_a_controller_that_gives_no_reading(
    answer: bytes | None, problem: str, controller: Controller, tmp_path: Path
) -> None:
    """At first it has none; later on it is a failure, and asked again."""
    clock = Clock()
    meter = meter_of(controller, tmp_path, clock)
    controller.answer = answer
    clock.now += DEADLINE_S + 0.1
    with pytest.raises(Unavailable, match=problem):
        meter.sample()
    clock.now += PERIOD_S
    meter.sample()
    controller.answer = reading(412)
    assert meter.sample() is not None
    clock.now += PERIOD_S
    meter.sample()
    controller.answer = answer
    clock.now += DEADLINE_S + 0.1
    with pytest.raises(IpmiError, match=problem):
        meter.sample()
    clock.now += PERIOD_S
    assert meter.sample() is None and len(controller.sent) == 4


def test_ipmi_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="shows no IPMI device"):
        IpmiMeter(tmp_path)
    (tmp_path / "ipmi0").touch(mode=0o600)

    def refuse(path: Path) -> Controller:
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.raises(
        Unavailable, match=r"ipmi0 may not be opened by this user: mode 0600, user \d+, group \d+; log in"
    ):
        IpmiMeter(tmp_path, open_device=refuse)
    (tmp_path / "ipmi0").unlink()
    (tmp_path / "ipmi0").mkdir()
    with pytest.raises(Unavailable, match="cannot be opened: Is a directory"):
        IpmiMeter(tmp_path)


class Driver:
    """Linux's IPMI driver as its header describes it to a 64-bit program: the offsets are written down here anew."""

    def __init__(self, answers: list[tuple[int, int, bytes]]) -> None:
        self.requests: list[tuple[int, int, bytes]] = []
        self._answers = answers  # type of the message, id, data

    def __call__(self, _descriptor: int, number: int, argument: ctypes.Structure) -> None:
        if number == 0x8028690D:  # IPMICTL_SEND_COMMAND
            address, length, _, netfn, command, size, data = struct.unpack("=QI4xqBBH4xQ", bytes(argument))
            assert struct.unpack("=ihB", ctypes.string_at(address, 7)) == (0x0C, 0x0F, 0) and length == 8
            self.requests.append((netfn, command, ctypes.string_at(data, size)))
            return
        assert number == 0xC030690B, "IPMICTL_RECEIVE_MSG_TRUNC"
        _, _, _, _, _, _, size, data = struct.unpack("=i4xQI4xqBBH4xQ", bytes(argument))
        kind, identity, answer = self._answers.pop(0)
        ctypes.memmove(data, answer, min(len(answer), size))
        base = ctypes.addressof(argument)
        ctypes.memmove(base, struct.pack("=i", kind), 4)
        ctypes.memmove(base + 24, struct.pack("=q", identity), 8)
        ctypes.memmove(base + 34, struct.pack("=H", min(len(answer), size)), 2)
        if len(answer) > size:
            raise OSError(errno.EMSGSIZE, "Message too long")


def test_a_command_goes_through_the_driver_s_own_structures(tmp_path: Path) -> None:
    """An event and an answer that came too late are passed over."""
    (tmp_path / "ipmi0").touch()
    driver = Driver([(1, 1, b"late"), (2, 2, b"event"), (1, 2, reading(412)), (1, 3, bytes(300))])
    device = IpmiDevice(tmp_path / "ipmi0", driver)
    device.send(0x2C, 0x02, b"\xdc\x01\x00\x00")
    device.send(0x2C, 0x02, b"\xdc\x01\x00\x00")
    assert driver.requests == [(0x2C, 0x02, b"\xdc\x01\x00\x00")] * 2
    assert device.receive() == reading(412)
    device.send(0x06, 0x01, b"")
    assert device.receive() == bytes(256)
    device.close()


def test_a_device_that_is_none_of_ipmi_is_unavailable(tmp_path: Path) -> None:
    """Linux's own refusal, of a file that is no such device."""
    (tmp_path / "ipmi0").touch()
    with pytest.raises(Unavailable, match="the driver refuses: Inappropriate ioctl for device"):
        IpmiMeter(tmp_path).sample()


def test_accelerator_power_by_counter() -> None:
    sampler = AcceleratorSampler(FakeProbe, "x_monitor.log", deadline_s=5)
    meter = AcceleratorMeter(sampler)
    assert meter.sample() is None, "nothing was sampled yet"
    sampler.sample()
    sampler.sample()
    both = {"meter": "accelerator", "watts": 300.0, "joules": 300.0, "method": "counter", "devices": [2, 2]}
    assert meter.sample() == both


def test_accelerator_power_integrated_where_there_is_no_counter() -> None:
    sampler = AcceleratorSampler(lambda: FakeProbe(counting=()), "x_monitor.log", deadline_s=5)
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
    assert meter.sample() == {
        "meter": "accelerator", "watts": 100.0, "joules": 100.0 + 100.0, "method": "counter", "devices": [1, 2],
    }  # fmt: skip


def test_energy_that_not_all_devices_count_is_integrated_from_the_power_of_all() -> None:
    sampler = AcceleratorSampler(lambda: FakeProbe(counting=(0,)), "x_monitor.log", deadline_s=5)
    meter = AcceleratorMeter(sampler)
    sampler.sample()
    assert (found := meter.sample()) is not None
    assert (found["watts"], found["method"]) == (300.0, "integrated power")


def test_devices_that_do_not_know_their_power() -> None:
    sampler = AcceleratorSampler(lambda: FakeProbe(power=False), "x_monitor.log", deadline_s=5)
    sampler.sample()
    with pytest.raises(Unavailable, match="no device reports its power"):
        AcceleratorMeter(sampler).sample()
