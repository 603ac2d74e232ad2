"""Uses Cambricon's MLUs through torch_mlu: nothing of them is known to differ from other modules of devices."""

from vendors.device import Accelerators


class CambriconAccelerators(Accelerators):
    """Cambricon's MLUs, with CNCL between them."""

    library = "cncl"
    library_kernels = ("cncl",)
    leaves_open = True

    def __init__(self) -> None:
        super().__init__("mlu", plugin="torch_mlu")


def open_devices() -> CambriconAccelerators:
    """The accelerators that this process sees."""
    return CambriconAccelerators()
