"""Vendor `kunlunxin`: Kunlunxin's XPUs, and the table of xpu-smi."""

from vendors.base import Vendor
from vendors.tools import Tool

# The output of xpu-smi 515 in Paddle's document for the P800; `xpu-smi -m`, FlagPerf's, prints no units.
TOOL = Tool(
    command=("xpu-smi",),
    lines=(
        "| {index} {name} {} | {pci} {} | {ecc_uncorrected} |",
        "| {} {temperature_c:C} {} {power_w:W} / {power_limit_w:W} | {memory_used_mib:MiB} / {memory_total_mib:MiB}"
        " | {utilization_percent:%} {} |",
    ),
)


VENDOR = Vendor(
    name="kunlunxin",
    visible_devices_env="XPU_VISIBLE_DEVICES",
    backend="gloo",  # ranks compute on the host: how its torch is used has no public document
    container_options=(
        "--device /dev/xpu[0-9]* --device /dev/xpuctrl -v /usr/local/bin/xpu-smi:/usr/local/bin/xpu-smi:ro"
    ),
    device_files=("/dev/xpu[0-9]*",),
    open_probe=TOOL.open_probe,
    monitor_name="kunlunxin",
)
