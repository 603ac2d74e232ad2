"""Vendor `mthreads`: Moore Threads' GPUs through torch_musa, MCCL between them, and the lines of mthreads-gmi."""

from vendors.base import Vendor
from vendors.datasheet import row
from vendors.tools import Tool

_S4000 = (
    "Moore Threads' announcement of the MTT S4000, 19 December 2023, https://www.mthreads.com; MTLink has 240 GB/s"
    " in both directions"
)
_RATES = {"fp32": 25.0, "bf16": 100.0, "fp16": 100.0, "int8": 200.0}
DATASHEETS = (row("MTT S4000", _S4000, _RATES, (768, 48), (64, 120), "MTT S4000"),)


# The names and units of `mthreads-gmi -q` in FlagPerf's monitor and of an S5000, in that order for each device.
TOOL = Tool(
    command=("mthreads-gmi", "-q"),
    lines=(
        "Product Name : {name}",
        "Total : {memory_total_mib:MiB}",
        "Used : {memory_used_mib:MiB}",
        "Gpu : {utilization_percent:%}",
        "GPU Current Temp : {temperature_c:C}",
        "Power Draw : {power_w:W}",
    ),
)


VENDOR = Vendor(
    name="mthreads",
    visible_devices_env="MUSA_VISIBLE_DEVICES",
    backend="mccl",
    device_type="musa",
    container_options="--privileged -v /usr/bin/mthreads-gmi:/usr/bin/mthreads-gmi:ro",
    device_files=("/dev/mtgpu.[0-9]*",),
    socket_variables=("MCCL_SOCKET_IFNAME",),
    datasheets=DATASHEETS,
    open_probe=TOOL.open_probe,
    monitor_name="mthreads",
)
