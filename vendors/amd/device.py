"""Uses AMD's Instinct accelerators in a build of torch for ROCm, which calls them cuda; RCCL is called nccl there."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from vendors.cuda_device import CudaAccelerators
from vendors.device import Capability

_FP8 = ("gfx942", "gfx950")


class AmdAccelerators(CudaAccelerators):
    """AMD's accelerators, with RCCL between them.

    Capabilities are the numbers of the architecture: (9, 0) is gfx90a, MI200; (9, 4) gfx942, MI300; (9, 5) gfx950,
    MI350. Sources: the README of flash-attn 2, "AMD ROCm support", of ROCm/apex and of ROCm/TransformerEngine.
    """

    library = "rccl"
    kernels: ClassVar[Mapping[str, Capability]] = {
        "flash_attn": (9, 0),
        "apex": (9, 0),
        "transformer_engine": (9, 4),
        "inductor": (9, 0),
    }

    def is_of_this_torch(self) -> bool:
        return torch.version.hip is not None

    def versions(self) -> dict[str, str]:
        return super().versions() | {"hip": str(torch.version.hip)}

    def fp8_refusal(self, device: torch.device) -> str | None:
        """Why it has no units for 8-bit floating point. Source: torch's _scaled_mm, which wants gfx942 or gfx950."""
        name = self._architecture(device)
        return None if name.startswith(_FP8) else f"{name} has no units for 8-bit floating point"

    def fp8_dtype(self, device: torch.device) -> torch.dtype:
        """The type of 8-bit floating point; MI300's (gfx942) has no negative zero."""
        return torch.float8_e4m3fnuz if self._architecture(device).startswith(_FP8[0]) else torch.float8_e4m3fn

    def _architecture(self, device: torch.device) -> str:
        return str(self.module.get_device_properties(device).gcnArchName)


open_devices = AmdAccelerators
