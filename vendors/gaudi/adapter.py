"""Vendor `gaudi`: Intel's Gaudi accelerators through habana_frameworks, HCCL between them, and the table of hl-smi."""

from vendors.base import Vendor
from vendors.gaudi.programs import PROGRAMS
from vendors.tools import Tool

# Outputs of hl-smi 1.14 to 1.21 of an HL-225 and an HL-325L in the documents of Ray and IBM Cloud.
TOOL = Tool(
    command=("hl-smi",),
    lines=(
        "| {index} {name} {} | {pci} {} | {ecc_uncorrected} |",
        "| {} {temperature_c:C} {} {power_w:W} / {power_limit_w:W} | {memory_used_mib:MiB} / {memory_total_mib:MiB}"
        " | {utilization_percent:%} {} |",
    ),
)


VENDOR = Vendor(
    name="gaudi",
    visible_devices_env="HABANA_VISIBLE_MODULES",
    backend="hccl",
    device_type="hpu",
    container_options="--privileged -v /usr/bin/hl-smi:/usr/bin/hl-smi:ro",
    environment={"PT_HPU_LAZY_MODE": "0"},  # else operations wait until a step is marked
    device_files=("/dev/accel/accel[0-9]*",),
    socket_variables=("HCCL_SOCKET_IFNAME",),
    open_probe=TOOL.open_probe,
    monitor_name="gaudi",
    programs=PROGRAMS,
)
