"""CPU, memory, accelerator sampler and the worker thread behind it."""

import threading
import time
from collections.abc import Callable

import psutil
import pytest

from monitors.accelerator import AcceleratorSampler
from monitors.device_health import DeviceHealthSampler
from monitors.foreign import EVERY_S, ForeignProcesses
from monitors.host import CpuSampler, MemorySampler
from monitors.sampler import Late, Unavailable, Values, Worker
from tests.monitors.fake_probe import FakeProbe
from vendors import ProbeUnavailable


def test_cpu_is_a_percentage_of_all_cores() -> None:
    sampler = CpuSampler(per_core=True)
    sum(range(2_000_000))
    values = sampler.sample()
    assert 0 < values["utilization_percent"] <= 100
    assert len(values["cores_percent"]) == psutil.cpu_count()
    assert "cores_percent" not in CpuSampler(per_core=False).sample()


def test_memory_adds_up() -> None:
    values = MemorySampler().sample()
    assert values["total_bytes"] == psutil.virtual_memory().total
    assert values["used_percent"] == pytest.approx(100 * values["used_bytes"] / values["total_bytes"], abs=0.01)
    assert MemorySampler().rows(values) == [[values["used_percent"]]]


def test_accelerator_rows_are_the_seeds() -> None:
    sampler = AcceleratorSampler(FakeProbe, "x_monitor.log", deadline_s=5)
    assert sampler.rows(sampler.sample()) == [[0, 40, 100.0, 1024, 4096, 50.0], [1, 40, 200.0, 1024, 4096, 50.0]]


def test_a_lost_device_has_no_values_but_a_line() -> None:
    probe = FakeProbe()
    probe.lost = 0
    sampler = AcceleratorSampler(lambda: probe, "x_monitor.log", deadline_s=5)
    values = sampler.sample()
    assert values["devices"][0]["error"] == "fell off the bus"
    assert "error" not in values["devices"][1]
    assert sampler.rows(values)[0] == [0, None, None, None, None, None]


def test_an_unavailable_probe_keeps_its_reason() -> None:
    def absent() -> FakeProbe:
        raise ProbeUnavailable("no driver")

    with pytest.raises(Unavailable, match=r"^no driver$"):
        AcceleratorSampler(absent, "", deadline_s=5)


def test_a_probe_that_breaks_while_opening_is_unavailable() -> None:
    def broken() -> FakeProbe:
        raise RuntimeError("half a driver")

    with pytest.raises(Unavailable, match="does not start: RuntimeError: half a driver"):
        AcceleratorSampler(broken, "", deadline_s=5)


def test_a_probe_that_hangs_is_late_and_comes_back() -> None:
    probe = FakeProbe()
    sampler = AcceleratorSampler(lambda: probe, "", deadline_s=0.05)
    probe.hang = threading.Event()
    with pytest.raises(Late, match="no answer within"):
        sampler.sample()
    assert sampler.latest is None
    with pytest.raises(Late, match="has not come back"):
        sampler.sample()
    sampler.close()
    assert not probe.closed
    probe.hang.set()
    for _ in range(500):
        try:
            assert len(sampler.sample()["devices"]) == 2
            break
        except Late:
            continue
    else:
        pytest.fail("the probe answered again, the sampler did not")
    sampler.close()
    assert probe.closed


def eventually(read: Callable[[], Values | None]) -> Values:
    end = time.monotonic() + 200
    while time.monotonic() < end:
        found = read()
        if found is not None:
            return found
        time.sleep(0.01)
    pytest.fail("no look ever came")


def test_a_slow_look_at_the_health_is_fetched_later_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = FakeProbe()
    probe.hang = threading.Event()
    health = DeviceHealthSampler(AcceleratorSampler(lambda: probe, "", deadline_s=5))
    began = time.thread_time()
    assert [health.sample() for _ in range(1000)] == [None] * 1000, "the driver answers the first look yet"
    assert time.thread_time() - began < 5.0
    probe.hang.set()
    found = eventually(health.sample)
    assert [device["counts"] for device in found["devices"]] == [{"pcie_replays": 3}] * 2
    assert health.sample() is None, "the next is due only after a while"
    monkeypatch.setattr("monitors.device_health.LAST_DEADLINE_S", 200)
    assert health.sample_last() is not None, "but the last one always"
    health._begin()
    health._wait(time.monotonic() + 200)
    probe.error = RuntimeError("the driver broke at the end")
    assert health.sample_last() is not None, "what was seen before it broke is kept"


def test_a_driver_that_fails_at_first_ends_no_monitor_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = FakeProbe()
    probe.error = TypeError("string indices must be integers")
    sampler = AcceleratorSampler(lambda: probe, "", deadline_s=5)
    health = DeviceHealthSampler(sampler)
    with pytest.raises(TypeError, match="string indices"):
        eventually(health.sample)
    probe.error = None
    monkeypatch.setattr("monitors.device_health.LAST_DEADLINE_S", 200)
    assert health.sample_last() is not None


def test_processes_are_listed_again_after_an_answer_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = FakeProbe()
    foreign = ForeignProcesses(AcceleratorSampler(lambda: probe, "", deadline_s=5), "/logs")
    now = time.monotonic()
    assert foreign.sample() is not None
    probe.error = RuntimeError("busy")
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * EVERY_S)
    with pytest.raises(RuntimeError, match="busy"):
        foreign.sample()
    probe.error = None
    monkeypatch.setattr(time, "monotonic", lambda: now + 4 * EVERY_S)
    assert foreign.sample() == {"first": False, "foreign": [{"device": 0, "pid": 1, "memory_bytes": None}]}


def test_worker_hands_exceptions_over() -> None:
    worker = Worker("test")

    def own_timeout() -> None:
        raise TimeoutError("the function's own")

    with pytest.raises(TimeoutError, match="the function's own"):
        worker.call(own_timeout, 5)
    assert worker.call(lambda: 3, 5) == 3
