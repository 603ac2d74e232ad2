"""Uses the abacus: nothing of it differs from other modules of devices."""

from vendors.device import Accelerators


class AbacusAccelerators(Accelerators):
    """Abacuses, with gloo between them."""

    library = "gloo"

    def __init__(self) -> None:
        super().__init__("abacus", plugin="vendors.abacus.plugin")


def open_devices() -> AbacusAccelerators:
    """The accelerators that this process sees."""
    return AbacusAccelerators()
