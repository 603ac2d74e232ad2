"""What datasheets promise for a device, to hold measurements against. Needs no torch.

Source: NVIDIA's datasheets of the A100, H100 and H200 Tensor Core GPUs. Tensor-core figures are dense: half of those
that the H100's and H200's datasheets print with sparsity. fp64 is that of the tensor cores, fp32 that of the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Datasheet:
    """Peaks of one device: `tflops` by type (1e12 operations a second), memory bandwidth and host link in 1e9 B/s.

    `host_link_GBps` is one direction of the PCIe link.
    """

    name: str
    tflops: Mapping[str, float]
    memory_GBps: float  # noqa: N815 - the unit's own spelling
    host_link_GBps: float  # noqa: N815


_AMPERE = {"fp64": 19.5, "fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0, "int8": 624.0}
_HOPPER_SXM = {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "int8": 1978.9}
_HOPPER_PCIE = {"fp64": 51.2, "fp32": 51.2, "tf32": 378.0, "bf16": 756.0, "fp16": 756.0, "int8": 1513.0}
_HOPPER_NVL = {"fp64": 60.0, "fp32": 60.0, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "int8": 1671.0}

# Parts of the name that torch.cuda.get_device_name gives; the first row whose parts all occur counts.
_SHEETS: tuple[tuple[tuple[str, ...], Datasheet], ...] = (
    (("H200", "NVL"), Datasheet(name="H200 NVL", tflops=_HOPPER_NVL, memory_GBps=4800, host_link_GBps=64)),
    (("H200",), Datasheet(name="H200 SXM", tflops=_HOPPER_SXM, memory_GBps=4800, host_link_GBps=64)),
    (("H100", "PCIe"), Datasheet(name="H100 PCIe", tflops=_HOPPER_PCIE, memory_GBps=2000, host_link_GBps=64)),
    (("H100", "NVL"), Datasheet(name="H100 NVL", tflops=_HOPPER_NVL, memory_GBps=3900, host_link_GBps=64)),
    (("H100",), Datasheet(name="H100 SXM", tflops=_HOPPER_SXM, memory_GBps=3350, host_link_GBps=64)),
    (("A100", "PCI", "80GB"), Datasheet(name="A100 PCIe 80GB", tflops=_AMPERE, memory_GBps=1935, host_link_GBps=32)),
    (("A100", "80GB"), Datasheet(name="A100 SXM 80GB", tflops=_AMPERE, memory_GBps=2039, host_link_GBps=32)),
    (("A100",), Datasheet(name="A100 40GB", tflops=_AMPERE, memory_GBps=1555, host_link_GBps=32)),
)


def datasheet(device_name: str) -> Datasheet | None:
    """The datasheet of the device that calls itself `device_name`, or None where there is none here."""
    for parts, sheet in _SHEETS:
        if all(part.lower() in device_name.lower() for part in parts):
            return sheet
    return None
