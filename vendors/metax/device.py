"""Uses MetaX's GPUs in a build of torch that calls them cuda, and their library nccl."""

import torch

from vendors.cuda_device import CudaAccelerators


class MetaxAccelerators(CudaAccelerators):
    """MetaX's GPUs."""

    library = "mccl"

    def is_of_this_torch(self) -> bool:
        """See Accelerators. Its builds are called 2.8.0+metax3.5.3.9."""
        return "metax" in torch.__version__


def open_devices() -> MetaxAccelerators:
    """The accelerators that this process sees."""
    return MetaxAccelerators()
