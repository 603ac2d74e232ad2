"""Uses Hygon's DCUs in a build of torch that calls them cuda, and their library nccl."""

import torch

from vendors.cuda_device import CudaAccelerators


class DcuAccelerators(CudaAccelerators):
    """Hygon's DCUs."""

    library = "rccl"

    def is_of_this_torch(self) -> bool:
        return torch.version.hip is not None


open_devices = DcuAccelerators
