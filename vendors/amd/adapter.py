"""Vendor `amd`: Instinct accelerators seen through amdsmi, RCCL between them, images on top of ROCm's PyTorch."""

from pathlib import Path

from vendors.amd.datasheets import DATASHEETS
from vendors.base import AcceleratorProbe, ImageParameters, Vendor


def devices(root: Path) -> dict[str, str]:
    """The PCI addresses of the devices in the order of ROCm's numbers; ROCm's UUIDs are not in /sys.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c: properties of a node; a node without SIMDs is a CPU.
    """
    found = {}
    for path in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"), key=_number):
        try:
            facts = dict(line.split(maxsplit=1) for line in path.read_text(encoding="ascii").splitlines())
            simds, location, domain = (int(facts[key]) for key in ("simd_count", "location_id", "domain"))
        except (OSError, ValueError, KeyError):
            continue
        if simds:
            bus, device, function = location >> 8, location >> 3 & 31, location & 7
            found[f"{domain:04x}:{bus & 255:02x}:{device:02x}.{function}"] = ""
    return found


def _number(path: Path) -> int:
    name = path.parent.name
    return int(name) if name.isdecimal() else 0


def _open_probe() -> AcceleratorProbe:
    from vendors.amd.probe import open_amd_probe  # the head node has no amdsmi

    return open_amd_probe()


VENDOR = Vendor(
    name="amd",
    visible_devices_env="HIP_VISIBLE_DEVICES",
    backend="nccl",  # as which torch for ROCm knows RCCL
    # ROCm's documentation, "Running ROCm Docker containers"; RDMA pins memory.
    container_options=("--device /dev/kfd --device /dev/dri --group-add video --cap-add IPC_LOCK --ulimit memlock=-1"),
    apptainer_options=("--rocm",),
    environment={"NCCL_DEBUG": "WARN"},
    images={
        "pytorch": ImageParameters(
            template="pytorch.Dockerfile.j2",
            base_image="rocm/pytorch:rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0",
            python="/opt/clusterdyno/bin/python",
            unpacked_bytes=60 << 30,
        ),
    },
    open_probe=_open_probe,
    device_type="cuda",
    socket_variables=("NCCL_SOCKET_IFNAME",),
    pci_devices=devices,
    datasheets=DATASHEETS,
    packages=("amdsmi", "torchao"),
    image_variables=("ROCM_VERSION",),
    device_files=("/dev/dri/renderD[0-9]*",),
    monitor_name="amd",
)
