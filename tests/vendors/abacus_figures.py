"""Prints what shared code finds on the abacus, as JSON: each figure beside what only the device can have told."""

import json
import sys
import time
from typing import Any

import torch

from training.benchmarks.aicb.measuring import worker
from training.benchmarks.aicb.measuring.clock import Clock, ClockLimits
from training.benchmarks.base.pytorch.capacity import Capacity
from training.benchmarks.base.pytorch.config import Config as BaseConfig
from training.benchmarks.base.pytorch.operations import create
from training.benchmarks.driver.training.measuring.meter import Meter, peak_memory_bytes
from training.benchmarks.driver.workload import accelerator
from training.benchmarks.driver.workload.device_events import cycles_per_ns
from training.benchmarks.driver.workload.process_group import device_for
from training.benchmarks.network.pytorch.measuring import compute

BUSY_NS = 50_000_000


def figures() -> dict[str, Any]:
    devices = accelerator.use("abacus")
    device = device_for("abacus", 1)
    devices.take(device)
    module: Any = torch.get_device_module("abacus")
    meter = Meter(device)
    begin = meter.now()
    module._sleep(BUSY_NS)
    end = meter.now()
    synchronized = module.counts(1)["synchronized"]
    meter.synchronize()
    found = {
        "device": str(device),
        "name": accelerator.device_name(device),
        "busy_s": meter.seconds(begin, end),
        "synchronized": module.counts(1)["synchronized"] - synchronized,
        "cycles_per_ns": cycles_per_ns(device),
    }
    held = torch.zeros(3 << 20, dtype=torch.uint8, device=device)
    found |= {"peak": peak_memory_bytes(device), "free": devices.free_memory(device), "held": held.numel()}
    found["total"] = devices.total_memory(device)
    found |= _random(device) | _measured(device)
    return found | {"device_of_aiob": str(worker._device("auto"))}


def _random(device: torch.device) -> dict[str, Any]:
    """The device's stream of random numbers is its own: it is drawn from and restored, and the host's stands still."""
    devices = accelerator.accelerators(device)
    torch.manual_seed(7)
    host, own = torch.get_rng_state(), devices.random_state(device)
    first = torch.nn.functional.dropout(torch.ones(64, device=device))
    moved = not torch.equal(own, devices.random_state(device))
    devices.set_random_state(own, device)
    again = torch.nn.functional.dropout(torch.ones(64, device=device))
    return {
        "host_stood_still": torch.equal(host, torch.get_rng_state()),
        "own_moved": moved,
        "restored": torch.equal(first.cpu(), again.cpu()),
        "seed": devices.seed(),
    }


def _measured(device: torch.device) -> dict[str, Any]:
    events: Any = torch.get_device_module("abacus").counts
    before = events(1)["events"]
    clock = Clock(device, ClockLimits(iterations=3, warm_up=2))
    clock.measure(lambda: torch.get_device_module("abacus")._sleep(BUSY_NS // 10))
    slowly_queued = clock.measure(_queued_slowly).minimum
    compute._SIDE = 256  # a CPU without products of bfloat16 makes one of 2048 in 20 s
    product = compute.MatrixProducts(device)
    capacity = Capacity(device, None)
    taken = capacity.take()
    capacity.make_room()
    correct = capacity.is_correct()
    capacity.release()
    copy = create("host_to_device", BaseConfig(copy_bytes=1 << 16), device)
    copy.run()
    return {
        "events": events(1)["events"] - before,
        "slowly_queued_ns": slowly_queued,
        "product_is_on": str(product._left.device),
        "taken": taken,
        "capacity_is_correct": correct,
        "copy_is_correct": copy.is_correct(),
    }


def _queued_slowly() -> None:
    """A call of 1 ms of the device, for which the host takes 8 ms."""
    time.sleep(0.008)
    torch.get_device_module("abacus")._sleep(1_000_000)


def view_that_falls_back() -> None:
    """Call a view operator for which the device has no kernel."""
    accelerator.use("abacus")
    library: Any = torch.library.Library("abacus_test", "DEF")  # type: ignore[no-untyped-call]
    library.define("peek(Tensor(a) x) -> Tensor(a)")
    library.impl("peek", lambda x: x.view(-1), "CPU")
    torch.ops.abacus_test.peek(torch.ones(2, 2, device="abacus"))


if __name__ == "__main__":
    if sys.argv[1:] == ["view"]:
        view_that_falls_back()
    else:
        print(json.dumps(figures()))
