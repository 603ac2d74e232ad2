"""Vendor `dcu`: Hygon's DCUs, which its torch for ROCm calls cuda, and the table of hy-smi."""

from vendors.base import Vendor
from vendors.tools import Tool

# FlagPerf's output of a K100 and Paddle's of a K100_AI. Memory is in percent alone there.
TOOL = Tool(
    command=("hy-smi",),
    headings=("DCU ", "Temp", "AvgPwr", "PwrCap", "VRAM%", "DCU%"),
    lines=("{index} {temperature_c:C} {power_w:W} {} {power_limit_w:W} {} {utilization_percent:%} {...}",),
)


VENDOR = Vendor(
    name="dcu",
    visible_devices_env="HIP_VISIBLE_DEVICES",
    backend="nccl",  # as which its torch knows RCCL
    device_type="cuda",
    container_options="--device /dev/kfd --device /dev/mkfd --device /dev/dri --group-add video",
    device_files=("/dev/dri/renderD[0-9]*",),
    socket_variables=("NCCL_SOCKET_IFNAME",),
    open_probe=TOOL.open_probe,
    monitor_name="dcu",
)
