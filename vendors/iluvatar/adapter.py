"""Vendor `iluvatar`: Iluvatar CoreX's accelerators, which its torch calls cuda, and the table of ixsmi."""

from vendors.base import Vendor
from vendors.iluvatar.datasheets import DATASHEETS
from vendors.tools import Tool

# Outputs of ixsmi 3.0 to 4.4 in the documents of PaddleNLP, Paddle and ix-container-toolkit.
TOOL = Tool(
    command=("ixsmi",),
    lines=(
        "| {index} {name} | {pci} | {sm_clock_mhz:MHz} {memory_clock_mhz:MHz} |",
        "| {} {temperature_c:C} {} {power_w:W} / {power_limit_w:W} | {memory_used_mib:MiB} / {memory_total_mib:MiB}"
        " | {utilization_percent:%} {} |",
    ),
)


VENDOR = Vendor(
    name="iluvatar",
    visible_devices_env="CUDA_VISIBLE_DEVICES",
    backend="nccl",  # as which its torch knows ixCCL
    device_type="cuda",
    container_options="-v /lib/modules:/lib/modules --privileged",
    datasheets=DATASHEETS,
    device_files=("/dev/iluvatar[0-9]*",),
    socket_variables=("NCCL_SOCKET_IFNAME",),
    open_probe=TOOL.open_probe,
    monitor_name="iluvatar",
)
