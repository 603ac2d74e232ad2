"""`--gpus` on a real engine: containers get the devices and the library of a scripted driver, by a stand-in hook."""

import json
from collections.abc import Callable

import pytest

from run_benchmarks.runtimes.docker import _device_requests
from run_benchmarks.settings.container_options import parse_container_options
from tests.cluster import seed
from tests.cluster.engine import Engine
from tests.imports import ROOT
from tests.vendors.scripted import in_containers

pytestmark = pytest.mark.cluster
Seen = Callable[[str], dict[str, object]]
LOOK = """
import glob, json
from vendors.base import ProbeUnavailable
from vendors.nvidia.probe import open_nvml_probe
try:
    probe = open_nvml_probe()
    devices = [device["name"] for device in probe.describe()["devices"]]
    watts = [sample.power_w for sample in probe.sample()]
except ProbeUnavailable as error:
    devices, watts = str(error), []
print(json.dumps({"nodes": sorted(glob.glob("/dev/nvidia*")), "devices": devices, "watts": watts}))
"""


@pytest.fixture
def seen(docker_engine: Engine) -> Seen:
    """What a container with these options sees; the options are read and requested as a run does."""
    in_containers()
    client = docker_engine.connect()

    def look(options: str) -> dict[str, object]:
        printed = client.containers.run(
            seed.case_image().tag,
            ["python", "-c", LOOK],
            device_requests=_device_requests(parse_container_options(options)),
            environment={"PYTHONPATH": "/code"},
            volumes={str(ROOT): {"bind": "/code", "mode": "ro"}},
            network_mode="none",
            remove=True,
        )
        found: dict[str, object] = json.loads(printed)
        return found

    return look


def test_a_container_with_all_gpus_sees_the_driver_s_devices_and_another_sees_none(seen: Seen) -> None:
    everything = seen("--gpus all")
    assert everything["nodes"] == [f"/dev/nvidia{index}" for index in range(8)]
    assert (everything["devices"], everything["watts"]) == (["NVIDIA H200"] * 8, [512.0] * 8)
    assert seen('--gpus "device=1,3"')["nodes"] == ["/dev/nvidia1", "/dev/nvidia3"]
    nothing = seen("")
    assert nothing["nodes"] == [] and "NVML does not start" in str(nothing["devices"])
