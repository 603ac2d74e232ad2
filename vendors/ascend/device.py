"""Uses Ascend's devices through torch_npu, with HCCL between them."""

from collections.abc import Mapping
from typing import ClassVar

from vendors.device import Accelerators, Capability


class AscendAccelerators(Accelerators):
    """Ascend's devices. They have no capability: torch_npu tells none, and a kernel that is listed runs on all."""

    library = "hccl"
    library_kernels = ("hcom", "hccl")
    leaves_open = True
    kernels: ClassVar[Mapping[str, Capability]] = {}

    def __init__(self) -> None:
        super().__init__("npu", plugin="torch_npu")

    def versions(self) -> dict[str, str]:
        return {"cann": str(self.module.utils.get_cann_version())}


open_devices = AscendAccelerators
