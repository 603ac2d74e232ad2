"""What a monitor's record says of disturbances: a stepped clock, heat, strangers on the devices."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from monitors import loop, sink
from monitors.accelerator import AcceleratorSampler
from monitors.ending import Ending
from monitors.foreign import EVERY_S, ForeignProcesses
from monitors.host import CpuSampler, MemorySampler, ThrottleSampler
from monitors.sampler import Sampler, Unavailable
from monitors.sink import SampleSink, Stamp
from run_benchmarks.results.samples.disturbances import (
    MAX_KEPT,
    MAX_SAMPLES,
    Disturbances,
    process_seconds,
    read_disturbances,
)
from tests.vendors.fake_nvml import FakeNvml
from vendors.nvidia.probe import NvmlProbe

INTERVAL_S = 0.05


def watched(folder: Path, *samplers: Sampler, ticks: int = 8) -> Path:
    """The record of so many ticks."""

    class Ticks(Ending):
        def __init__(self) -> None:
            self.left = ticks

        def wait(self, until: float) -> str | None:
            self.left -= 1
            return None if self.left >= 0 else "enough"

    with_sink = SampleSink(folder)
    for sampler in samplers:
        with_sink.header(sampler.log, sampler.columns)
    loop.Loop(samplers, with_sink, INTERVAL_S).run(Ticks())
    with_sink.close()
    return folder / "monitor.jsonl"


@pytest.mark.parametrize("jump_ms", [3_600_000, -250, 40])
def test_a_step_of_the_clock_is_seen_and_jitter_is_not(
    jump_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = 0

    def stepped() -> Stamp:
        nonlocal readings
        readings += 1
        return Stamp(1_790_000_000_000 + 1000 * readings + (jump_ms if readings > 4 else 0), 50.0 + readings)

    monkeypatch.setattr(loop, "now", stepped)
    steps = read_disturbances(watched(tmp_path, MemorySampler())).clock_steps
    assert [(step.seconds, step.to_ms - step.from_ms) for step in steps] == (
        [(jump_ms / 1000, 1000 + jump_ms)] if abs(jump_ms) > 100 else []
    )


def test_a_pause_between_the_two_clocks_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process got no core for 2 s after it had read one clock."""
    clock = iter([10.0, 12.0, 12.0, 12.0001])
    monkeypatch.setattr("monitors.sink.time.monotonic", lambda: next(clock, 12.0001))
    assert sink.now().monotonic_s == 12.0001


def test_what_processes_used_is_the_kernels_count(tmp_path: Path) -> None:
    found = read_disturbances(watched(tmp_path, CpuSampler(per_core=False)))
    times = psutil.cpu_times()
    assert found.cores == psutil.cpu_count()
    assert found.process_s[-1][1] == pytest.approx(times.user + times.nice + times.system, abs=60)


def test_seconds_between_two_moments_are_interpolated() -> None:
    samples = [(1000, 10.0), (2000, 12.0), (3000, 12.5)]
    assert process_seconds(samples, 1500, 2500) == pytest.approx(1.25)
    assert process_seconds(samples, 500, 2500) is None and process_seconds(samples, 1500, 3500) is None
    assert process_seconds(samples[:1], 1000, 1000) is None


def test_the_kernels_throttle_counts_are_summed_once_a_package(tmp_path: Path) -> None:
    for cpu, (package, count) in enumerate([(0, 5), (0, 5), (1, 7)]):
        for name, text in (
            ("thermal_throttle/package_throttle_count", count),
            ("topology/physical_package_id", package),
        ):
            path = tmp_path / f"cpu{cpu}" / name
            path.parent.mkdir(parents=True)
            path.write_text(f"{text}\n")
    sampler = ThrottleSampler(tmp_path)
    assert sampler.sample() is None
    (tmp_path / "cpu0/thermal_throttle/package_throttle_count").write_text("8\n")
    (tmp_path / "cpu2/thermal_throttle/package_throttle_count").write_text("9\n")
    assert sampler.sample() == {"events": 5}
    assert sampler.sample() is None
    with pytest.raises(Unavailable):
        ThrottleSampler(tmp_path / "none")


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(devices=2)


@pytest.fixture
def sampler(nvml: FakeNvml) -> AcceleratorSampler:
    return AcceleratorSampler(lambda: NvmlProbe(nvml), "", deadline_s=5)


def test_heat_is_a_disturbance_and_the_power_limit_is_not(tmp_path: Path, sampler: AcceleratorSampler) -> None:
    found = read_disturbances(watched(tmp_path, sampler, ticks=3))
    assert {key: value.samples for key, value in found.throttling.items()} == {
        (0, "hw_thermal_slowdown"): 3,
        (1, "hw_thermal_slowdown"): 3,
    }
    assert found.used_bytes[0][1] == 7 << 30


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[dict[str, int]]:
    """A stranger's process, and one whose parent is a launch of this round."""
    launch = ["sh", "-c", "sleep 60 & echo $!; wait", "launch", "--log_dir", str(tmp_path)]
    started = [
        subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE, text=True),
        subprocess.Popen(launch, stdout=subprocess.PIPE, text=True),
    ]
    assert started[1].stdout is not None
    rank = int(started[1].stdout.readline())
    yield {"stranger": started[0].pid, "rank": rank}
    os.kill(rank, 9)
    for process in started:
        process.kill()
        process.communicate()


def test_strangers_on_a_device_are_told_from_the_rounds_own_processes(
    tmp_path: Path,
    nvml: FakeNvml,
    sampler: AcceleratorSampler,
    processes: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 1000.0
    monkeypatch.setattr("monitors.foreign.time.monotonic", lambda: clock)
    invisible = 1 << 30
    nvml.processes = {1: [invisible]}
    looks = ForeignProcesses(sampler, str(tmp_path))
    assert looks.sample() == {"first": True, "foreign": [{"device": 1, "pid": invisible, "memory_bytes": 1 << 30}]}
    nvml.processes = {0: [processes["rank"], invisible + 1], 1: [processes["stranger"], invisible]}
    assert looks.sample() is None, "it is not due"
    clock += EVERY_S + 1
    values = looks.sample()
    assert values is not None and not values["first"]
    assert [(each["device"], each["pid"]) for each in values["foreign"]] == [(1, processes["stranger"]), (1, invisible)]


def test_a_driver_that_lists_no_processes_is_asked_no_more(nvml: FakeNvml, sampler: AcceleratorSampler) -> None:
    nvml.fail("nvmlDeviceGetComputeRunningProcesses", 4)  # NVML_ERROR_NO_PERMISSION
    looks = ForeignProcesses(sampler, "/logs")
    assert looks.sample() is None
    assert sampler.processes() is None
    assert nvml.calls.count("nvmlDeviceGetComputeRunningProcesses") == 2


def test_a_record_of_any_length_is_kept_in_bounded_memory() -> None:
    """A host that steps its clock in each line, with a new device and process in each: beyond the bound they count."""
    found, lines = Disturbances(), 3 * MAX_SAMPLES
    for tick in range(lines):
        cpu = {"process_s": 2.0 * tick, "cores": 4}
        found.take({"t_ms": 1000 * tick, "monotonic_s": float(tick), "source": "cpu", "values": cpu})
    assert len(found.process_s) < MAX_SAMPLES and found.left_out == 0
    assert process_seconds(found.process_s, 1_000_000, 250_000_000) == pytest.approx(498_000.0)
    found = Disturbances()
    for number in range(2 * MAX_KEPT):
        device = {"index": number, "memory_used_bytes": 1, "throttle_reasons": ["hw_slowdown"]}
        foreign = {"first": True, "foreign": [{"device": number, "pid": 1, "memory_bytes": 1}]}
        at = {"t_ms": 5000 * number, "monotonic_s": 0.0}
        found.take({**at, "source": "accelerator", "values": {"devices": [device]}})
        found.take({**at, "source": "accelerator_processes", "values": foreign})
    kept = (found.clock_steps, found.throttling, found.foreign, found.used_bytes)
    assert [len(each) for each in kept] == 4 * [MAX_KEPT]
    assert found.left_out == (2 * MAX_KEPT - 1 - MAX_KEPT) + 3 * MAX_KEPT
