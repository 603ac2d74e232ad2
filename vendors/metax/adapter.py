"""Vendor `metax`: MetaX's GPUs, which its torch calls cuda, and the table of mx-smi."""

from vendors.base import Vendor
from vendors.tools import Tool

# The output of mx-smi 2.2.8 of an N260.
TOOL = Tool(
    command=("mx-smi",),
    driver=r"Kernel Mode Driver Version: (\S+)",
    lines=(
        "| {index} {name} {} | {pci} | {utilization_percent:%} {...} |",
        "| {temperature_c:C} {power_w:W} / {power_limit_w:W} {} | {memory_used_mib}/{memory_total_mib:MiB} | {...} |",
    ),
)


VENDOR = Vendor(
    name="metax",
    visible_devices_env="CUDA_VISIBLE_DEVICES",
    backend="nccl",  # as which its torch knows MCCL
    device_type="cuda",
    container_options="--device /dev/mxcd --device /dev/dri --group-add video",
    device_files=("/dev/dri/renderD[0-9]*",),
    socket_variables=("MCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    open_probe=TOOL.open_probe,
    monitor_name="metax",
)
