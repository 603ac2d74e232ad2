"""Uses Gaudi accelerators through habana_frameworks: nothing is known to differ from other modules of devices."""

from functools import partial

from vendors.device import PluggedIn

# This module makes both the device and HCCL known to torch.
open_devices = partial(PluggedIn, "hpu", plugin="habana_frameworks.torch.distributed.hccl", library="hccl")
