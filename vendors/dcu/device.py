"""Uses Hygon's DCUs in a build of torch that calls them cuda, and their library nccl."""

import torch

from vendors.cuda_device import CudaAccelerators


class DcuAccelerators(CudaAccelerators):
    """Hygon's DCUs."""

    library = "rccl"

    def is_of_this_torch(self) -> bool:
        """Whether torch is built for ROCm, as DCU's builds are."""
        return torch.version.hip is not None


def open_devices() -> DcuAccelerators:
    """The accelerators that this process sees."""
    return DcuAccelerators()
