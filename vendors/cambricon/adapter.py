"""Vendor `cambricon`: Cambricon's MLUs through torch_mlu, CNCL between them, and the table of cnmon."""

from vendors.base import Vendor
from vendors.datasheet import row
from vendors.tools import Tool

_X8 = (
    "Cambricon's announcement of the MLU370-X8, 21 March 2022, https://www.cambricon.com; half of the card: each of"
    " its two chips is a device."
    " fp32 differs between reports"
)
DATASHEETS = (row("MLU370-X8", _X8, {"bf16": 48.0, "fp16": 48.0, "int8": 128.0}, (307.2, 24), (32, None), "MLU370-X8"),)


# Outputs of cnmon 5 in the documents of Paddle and PaddleNLP. Ecc-Error does not say whether it was corrected.
TOOL = Tool(
    command=("cnmon",),
    driver=r"Driver v(\S+)",
    lines=(
        "| {index} {} {name} {} | {pci} | {utilization_percent:%} {} |",
        "| {} {temperature_c:C} {power_w:W} / {power_limit_w:W} | {memory_used_mib:MiB} / {memory_total_mib:MiB}"
        " | {} {} |",
    ),
)


VENDOR = Vendor(
    name="cambricon",
    visible_devices_env="MLU_VISIBLE_DEVICES",
    backend="cncl",
    device_type="mlu",
    container_options="--privileged -v /usr/bin/cnmon:/usr/bin/cnmon:ro",
    device_files=("/dev/cambricon_dev[0-9]*",),
    socket_variables=("CNCL_SOCKET_IFNAME",),
    datasheets=DATASHEETS,
    open_probe=TOOL.open_probe,
    monitor_name="cambricon",
)
