"""Vendor `amd`: Instinct accelerators seen through amdsmi, RCCL between them, images on top of ROCm's PyTorch."""

from pathlib import Path

from vendors.amd.health import HEALTH
from vendors.amd.programs import PROGRAMS
from vendors.base import AcceleratorProbe, ImageParameters, Vendor
from vendors.datasheet import Rates, matrix_rates, row

_MI300X = (
    "AMD Instinct MI300X accelerator data sheet, https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/"
    "data-sheets/amd-instinct-mi300x-data-sheet.pdf"
)

_PAGE = "AMD's product page, https://www.amd.com/en/products/accelerators/instinct/"
_MI250X = f"{_PAGE}mi200/mi250x.html; half of it: each of its two dies is a device"
_MI325X, _MI350X, _MI355X = (f"{_PAGE}{name}.html" for name in ("mi300/mi325x", "mi350/mi350x", "mi350/mi355x"))
_MI250X_RATES = {"fp64": 47.9, "fp32": 47.9, "bf16": 191.5, "fp16": 191.5, "int8": 191.5}
_MI300_RATES = matrix_rates(163.4, 163.4, None, 1307.4, 2614.9)


def _mi350(fp64: float, fp32: float, bf16: float, fp8: float) -> Rates:
    return {"fp64": fp64, "fp32": fp32, "bf16": bf16, "fp16": bf16, "fp8": fp8, "int8": fp8}


# A pair of devices has one of the seven links of Infinity Fabric.
DATASHEETS = (
    row("MI250X", _MI250X, _MI250X_RATES, (1638.4, 64), (32, None), "AMD Instinct MI250X"),
    row("MI300X", _MI300X, _MI300_RATES, (5300, 192), (64, 64), "AMD Instinct MI300X", "AMD Instinct MI300X OAM"),
    row("MI325X", _MI325X, _MI300_RATES, (6000, 256), (64, 64), "AMD Instinct MI325X"),
    row("MI350X", _MI350X, _mi350(72.1, 144.2, 2306.9, 4613.7), (8000, 288), (64, 76.8), "AMD Instinct MI350X"),
    row("MI355X", _MI355X, _mi350(78.6, 157.3, 2516.6, 5033.2), (8000, 288), (64, 76.8), "AMD Instinct MI355X"),
)


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
    health=HEALTH,
    programs=PROGRAMS,
)
