"""Vendor `nvidia`: GPUs seen through NVML, NCCL between them, images on top of NGC's PyTorch."""

from pathlib import Path

from vendors.base import AcceleratorProbe, ImageParameters, Vendor
from vendors.nvidia.datasheets import DATASHEETS
from vendors.nvidia.health import HEALTH
from vendors.nvidia.programs import PROGRAMS


def devices(root: Path) -> dict[str, str]:
    """UUIDs of the devices by PCI address, in the order of the addresses, which is CUDA's for equal devices."""
    found = {}
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        facts = dict(line.partition(":")[::2] for line in lines)
        found[path.parent.name.lower()] = facts.get("GPU UUID", "").strip()
    return found


def _open_probe() -> AcceleratorProbe:
    from vendors.nvidia.probe import open_nvml_probe  # the head node has no pynvml

    return open_nvml_probe()


VENDOR = Vendor(
    name="nvidia",
    visible_devices_env="CUDA_VISIBLE_DEVICES",
    backend="nccl",
    # RDMA pins memory: NCCL over InfiniBand needs IPC_LOCK and no limit on locked memory.
    container_options="--gpus all --cap-add IPC_LOCK --ulimit memlock=-1",
    # What NVIDIA's container runtime mounts: `utility` brings libnvidia-ml, which a plain base image does not ask for.
    apptainer_options=("--nv",),
    # With WARN NCCL says why it failed, and its version, but nothing while it works.
    environment={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility", "NCCL_DEBUG": "WARN"},
    images={
        "pytorch": ImageParameters(
            template="pytorch.Dockerfile.j2",
            base_image="nvcr.io/nvidia/pytorch:25.12-py3",
            unpacked_bytes=24 << 30,
            options={"flash_attn": "", "apex": "", "max_jobs": "8"},
        ),
        "paddle": ImageParameters(
            template="paddle.Dockerfile.j2",
            base_image="python:3.11-slim",
            unpacked_bytes=12 << 30,
            # Where Paddle's installation guide takes its GPU builds from: PyPI has none of the present ones.
            options={"extra_index_url": "https://www.paddlepaddle.org.cn/packages/stable/cu126/"},
            requirements="paddle-gpu.txt",
        ),
    },
    open_probe=_open_probe,
    device_type="cuda",
    socket_variables=("NCCL_SOCKET_IFNAME",),
    pci_devices=devices,
    datasheets=DATASHEETS,
    packages=("nvidia-ml-py", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "torchao"),
    image_variables=("NVIDIA_PYTORCH_VERSION", "CUDA_VERSION", "NCCL_VERSION"),
    device_files=("/dev/nvidia[0-9]*",),
    monitor_name="nvidia",
    health=HEALTH,
    programs=PROGRAMS,
    seen="H100, H200, 2026-11",
    # NVLink joins the memory of the hosts of an IMEX domain (GB200 NVL72): NVIDIA's IMEX guide, "Channels".
    link_devices=("/dev/nvidia-caps-imex-channels/channel0",),
    device_memory="nvidia-smi --query-gpu=index,memory.total,memory.used --format=csv,noheader,nounits",
    device_processes="nvidia-smi --query-compute-apps=pid,process_name,used_memory,gpu_uuid --format=csv,noheader",
)
