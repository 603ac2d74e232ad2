"""The monitor gets what its host measures power with, and its workload does not."""

from pathlib import Path

import docker

from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.facts import Questions, gather
from run_benchmarks.inspection.power_meters import with_power_meters
from run_benchmarks.plan.plan import POWERCAP_MOUNTS
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.docker import _host_config
from run_benchmarks.settings.container_options import ContainerOptions
from tests.run_benchmarks.reports import facts
from tests.run_benchmarks.results.rounds import node_plan

WORKLOAD = Bound(master_port=29500, devices=("/dev/infiniband",))


def config(bound: Bound) -> dict[str, object]:
    """What the engine is told of a container; no engine is asked for it."""
    client = docker.APIClient(base_url="unix:///nowhere.sock", version="1.41")
    found: dict[str, object] = _host_config(client, node_plan("h1", 0, (0,)), ContainerOptions(), bound)
    return found


def test_a_host_with_both_meters() -> None:
    has = facts(has_powercap=True, ipmi_devices=("/dev/ipmi0",), power_groups=("997",))
    watching, working = config(with_power_meters(WORKLOAD, has)), config(WORKLOAD)
    device = {"PathOnHost": "/dev/ipmi0", "PathInContainer": "/dev/ipmi0", "CgroupPermissions": "rw"}
    assert device in watching["Devices"] and device not in working["Devices"]  # type: ignore[operator]
    assert watching["GroupAdd"] == ["997"] and "GroupAdd" not in working
    counters = [mount for mount in watching["Mounts"] if "powercap" in mount["Source"]]  # type: ignore[attr-defined]
    assert [mount["Source"] for mount in counters] == [volume.source for volume in POWERCAP_MOUNTS]
    assert all(mount["ReadOnly"] for mount in counters)
    assert not any("powercap" in mount["Source"] for mount in working["Mounts"])  # type: ignore[attr-defined]


def test_a_host_with_none() -> None:
    assert with_power_meters(WORKLOAD, facts()) == WORKLOAD


def test_what_a_host_has_is_found(tmp_path: Path) -> None:
    """On this machine, whatever that is."""
    nothing: tuple[str, ...] = ()
    asked = Questions(
        deploy=str(tmp_path),
        log_root=str(tmp_path),
        code_dir=str(tmp_path / "code"),
        python=None,
        packages=nothing,
        master=None,
        names=nothing,
        device_globs=nothing,
        data=nothing,
    )
    found = gather(LocalHost("localhost"), asked)
    assert list(found.ipmi_devices) == sorted(str(path) for path in Path("/dev").glob("ipmi[0-9]*"))
    assert found.has_powercap == all(Path(volume.source).is_dir() for volume in POWERCAP_MOUNTS)
