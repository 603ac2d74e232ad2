"""Vendor `iluvatar`: Iluvatar CoreX's accelerators, which its torch calls cuda, and the table of ixsmi."""

from vendors.base import Vendor
from vendors.datasheet import row
from vendors.tools import Tool

_BIG_ISLAND = (
    "Iluvatar CoreX's announcement of its first accelerator, 31 March 2021, as reported by"
    " https://geektopia.es/es/technology/2021/04/05/noticias/amp/"
    "la-empresa-china-tianshu-zhixin-empieza-la-produccion-de-su-gpgpu-a-7-nm-alcanza-los-37-tflops.html;"
    " the name as ixsmi prints the BI-V150's"
)
_RATES = {"fp32": 37.0, "bf16": 147.0, "fp16": 147.0, "int8": 295.0}
DATASHEETS = (row("BI-V100", _BIG_ISLAND, _RATES, (1200, 32), (32, None), "Iluvatar BI-V100"),)


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
