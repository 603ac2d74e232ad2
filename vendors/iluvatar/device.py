"""Uses Iluvatar's accelerators in a build of torch that calls them cuda, and their library nccl."""

import torch

from vendors.cuda_device import CudaAccelerators


class IluvatarAccelerators(CudaAccelerators):
    """Iluvatar's accelerators."""

    library = "ixccl"

    def is_of_this_torch(self) -> bool:
        """See Accelerators. Its builds are called 2.1.1+corex.4.3.8."""
        return "corex" in torch.__version__


def open_devices() -> IluvatarAccelerators:
    """The accelerators that this process sees."""
    return IluvatarAccelerators()
