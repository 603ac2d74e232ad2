"""Vendor `ascend`: Huawei's accelerators through torch_npu, HCCL between them, the table of npu-smi."""

from pathlib import Path

from vendors.ascend.health import HEALTH
from vendors.ascend.programs import PROGRAMS
from vendors.base import ImageParameters, Vendor
from vendors.datasheet import row
from vendors.tools import Tool

HUAWEI = "0x19e5"
_DEVICES = ("0xd801", "0xd802", "0xd803")
"""Identities of the 910A, 910B and 910C in pci.ids."""


def devices(root: Path) -> dict[str, str]:
    """The PCI addresses of the devices in their own order; they have no UUIDs in /sys."""
    found = []
    for path in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor, device = ((path / name).read_text(encoding="ascii").strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == HUAWEI and device in _DEVICES:
            found.append(path.name)
    return dict.fromkeys(found, "")


_910B3 = (
    "Huawei publishes no document; 313 and 78.3 TFLOPS, 64 GB and 1.6 TB/s in Huawei's forum of developers,"
    " https://jdc.huawei.com/jdc/refactor/viewthread?tid=1175654"
)
DATASHEETS = (
    row(
        "910B3", _910B3, {"fp32": 78.3, "bf16": 313.0, "fp16": 313.0}, (1600, 64), (None, None), "910B3", "Ascend910B3"
    ),
)


# Outputs of npu-smi 22 to 25 in the documents of FlagPerf, vLLM and CANN. A device has one pair of lines for each chip.
# Versions without HBM-Usage are of devices whose only memory is Memory-Usage. The tool calls MiB MB.
TOOL = Tool(
    command=("npu-smi", "info"),
    headings=("Power(W)", "Temp(C)", "AICore(%)", "Memory-Usage(MB)"),
    driver=r"Version:\s*(\S+)",
    lines=(
        "| {} {name} | {health} | {power_w} {temperature_c} {...} / {...} |",
        (
            "| {...} | {pci} | {utilization_percent} {} / {...} {memory_used_mib} / {memory_total_mib} |",
            "| {...} | {pci} | {utilization_percent} {memory_used_mib} / {memory_total_mib} |",
        ),
    ),
)


VENDOR = Vendor(
    name="ascend",
    visible_devices_env="ASCEND_RT_VISIBLE_DEVICES",
    backend="hccl",
    # CANN's documentation, "Docker"; the driver is the host's. A host has as many davinci<n> as devices.
    container_options=(
        "--device /dev/davinci[0-9]* --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc"
        " -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro -v /usr/local/dcmi:/usr/local/dcmi:ro"
        " -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi:ro -v /etc/ascend_install.info:/etc/ascend_install.info:ro"
        " --cap-add IPC_LOCK --ulimit memlock=-1"
    ),
    environment={"ASCEND_GLOBAL_LOG_LEVEL": "3"},
    images={
        "pytorch": ImageParameters(
            template="pytorch.Dockerfile.j2",
            base_image="quay.io/ascend/cann:8.5.1-910b-ubuntu22.04-py3.11",
            unpacked_bytes=20 << 30,
            # The pair for CANN 8.5 in torch_npu's README; PyPI's torch would bring CUDA.
            options={
                "torch": "2.12.0",
                "torch_npu": "2.12.0",
                "extra_index_url": "https://download.pytorch.org/whl/cpu",
            },
        ),
    },
    open_probe=TOOL.open_probe,
    device_type="npu",
    socket_variables=("HCCL_SOCKET_IFNAME",),
    pci_devices=devices,
    datasheets=DATASHEETS,
    packages=("torch-npu",),
    image_variables=("CANN_VERSION", "ASCEND_TOOLKIT_HOME"),
    device_files=("/dev/davinci[0-9]*",),
    monitor_name="ascend",
    health=HEALTH,
    programs=PROGRAMS,
)
