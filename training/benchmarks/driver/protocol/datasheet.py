"""Peak rates of devices from their datasheets, for comparison with measurements. Needs no torch.

Tensor-core rates are dense: half of those that the H100's and H200's datasheets print with sparsity. fp64 is the rate
of the tensor cores, which matrix products use; fp32 that of the other cores. Each row names its document.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Datasheet:
    """Peak rates of one device: `tflops` by type (1e12 operations/s), memory bandwidth and host link in 1e9 bytes/s.

    `host_link_GBps` is one direction of the PCIe link; the documents print the sum of both. `source` is the document.
    """

    name: str
    source: str
    tflops: Mapping[str, float]
    memory_GBps: float  # noqa: N815 - the unit's own spelling
    host_link_GBps: float  # noqa: N815


_A100 = (
    "NVIDIA A100 Tensor Core GPU datasheet, 1758950-r4, https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/"
    "a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_HOPPER = (
    "NVIDIA H100 Tensor Core GPU Architecture (whitepaper), table of peak rates,"
    " https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
)
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, https://www.nvidia.com/en-us/data-center/h200/"

_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}
_HOPPER_SXM = {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "int8": 1978.9}
_HOPPER_PCIE = {"fp64": 51.2, "fp32": 51.2, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0, "int8": 1513.0}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "int8": 1671.0}


def _sheet(name: str, tflops: Mapping[str, float], memory: float, host_link: float, *, source: str) -> Datasheet:
    return Datasheet(name=name, source=source, tflops=tflops, memory_GBps=memory, host_link_GBps=host_link)


# Words of the name from torch.cuda.get_device_name; the first row whose words all occur is taken.
_SHEETS: tuple[tuple[tuple[str, ...], Datasheet], ...] = (
    (("H200", "NVL"), _sheet("H200 NVL", _HOPPER_NVL, 4800, 64, source=_H200)),
    (("H200",), _sheet("H200 SXM", _HOPPER_SXM, 4800, 64, source=f"{_H200}; rates to 4 digits: {_HOPPER}")),
    (("H100", "PCIe"), _sheet("H100 PCIe", _HOPPER_PCIE, 2000, 64, source=_HOPPER)),
    (("H100", "NVL"), _sheet("H100 NVL", _HOPPER_NVL, 3900, 64, source=_H100)),
    (("H100", "80GB"), _sheet("H100 SXM", _HOPPER_SXM, 3350, 64, source=f"{_H100}; rates to 4 digits: {_HOPPER}")),
    (("A100", "PCIe", "80GB"), _sheet("A100 PCIe 80GB", _AMPERE, 1935, 32, source=_A100)),
    (("A100", "80GB"), _sheet("A100 SXM 80GB", _AMPERE, 2039, 32, source=_A100)),
    (("A100", "40GB"), _sheet("A100 40GB", _AMPERE, 1555, 32, source=_A100)),
)
# A slice or a share of a device does not reach its peak rates.
_PARTS_OF_DEVICES = {"mig", "grid"}


def datasheet(device_name: str) -> Datasheet | None:
    """The datasheet for the device name `device_name`, None if the table has none."""
    words = set(re.findall(r"[a-z0-9.]+", device_name.lower()))
    if words & _PARTS_OF_DEVICES:
        return None
    for wanted, sheet in _SHEETS:
        if words >= {word.lower() for word in wanted}:
            return sheet
    return None
