"""Vendor `dcu`: Hygon's DCUs, which its torch for ROCm calls cuda, and the table of hy-smi, before DTK 24 rocm-smi."""

from vendors.base import Vendor
from vendors.tools import Tool

_HEADINGS = ("DCU ", "Temp", "AvgPwr", "PwrCap", "VRAM%", "DCU%")
# Memory is in percent alone. Paddle's output of a Z100 with DTK 23.10, and one with clocks, of a site's logs.
OLDER = Tool(
    command=("rocm-smi",),
    headings=_HEADINGS,
    lines=(
        (
            "{index} {temperature_c:c} {power_w:W} {}% {} {power_limit_w:W} {} {utilization_percent:%}",
            "{index} {temperature_c:c} {power_w:W} {sm_clock_mhz:Mhz} {memory_clock_mhz:Mhz} {}% {}"
            " {power_limit_w:W} {} {utilization_percent:%}",
        ),
    ),
)
# FlagPerf's output of a K100 and Paddle's of a K100_AI.
TOOL = Tool(
    command=("hy-smi",),
    headings=_HEADINGS,
    lines=("{index} {temperature_c:C} {power_w:W} {} {power_limit_w:W} {} {utilization_percent:%} {...}",),
    older=OLDER,
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
