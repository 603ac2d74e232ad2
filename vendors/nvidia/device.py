"""Uses NVIDIA's GPUs: which kernels run on which, TF32, FP8, NCCL."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from vendors.cuda_device import CudaAccelerators
from vendors.device import Capability

FP8_CAPABILITY = (8, 9)


class NvidiaAccelerators(CudaAccelerators):
    """NVIDIA's GPUs, with NCCL between them.

    Sources of the capabilities: flash-attn 2's README, "CUDA support"; Triton's, which torch.compile needs; torch's
    grouped_mm.
    """

    library = "nccl"
    kernels: ClassVar[Mapping[str, Capability]] = {
        "flash_attn": (8, 0),
        "apex": (0, 0),
        "transformer_engine": (0, 0),
        "inductor": (7, 0),
        "grouped_mm": (9, 0),
    }
    tf32 = True

    def is_of_this_torch(self) -> bool:
        return torch.version.hip is None

    def versions(self) -> dict[str, str]:
        return super().versions() | {"cuda": str(torch.version.cuda)}

    def set_tf32(self, allowed: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed

    def fp8_refusal(self, device: torch.device) -> str | None:
        """Why it has no units for 8-bit floating point. Source: torch's _scaled_mm, which wants capability 8.9."""
        capability = self.capability(device)
        if capability >= FP8_CAPABILITY:
            return None
        wanted, found = (".".join(map(str, each)) for each in (FP8_CAPABILITY, capability))
        return f"{self.name(device)} has compute capability {found}, {wanted} is needed"


open_devices = NvidiaAccelerators
