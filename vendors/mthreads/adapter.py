"""Vendor `mthreads`: Moore Threads' GPUs through torch_musa, MCCL between them, and the lines of mthreads-gmi."""

from vendors.base import Vendor
from vendors.mthreads.datasheets import DATASHEETS
from vendors.tools import Tool

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
