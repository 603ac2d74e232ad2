"""Uses Moore Threads' GPUs through torch_musa: nothing of them is known to differ from other modules of devices."""

from vendors.device import Accelerators


class MthreadsAccelerators(Accelerators):
    """Moore Threads' GPUs, with MCCL between them."""

    library = "mccl"
    library_kernels = ("mccl",)
    leaves_open = True

    def __init__(self) -> None:
        super().__init__("musa", plugin="torch_musa")


def open_devices() -> MthreadsAccelerators:
    """The accelerators that this process sees."""
    return MthreadsAccelerators()
