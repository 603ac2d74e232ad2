"""Uses Cambricon's MLUs through torch_mlu: nothing of them is known to differ from other modules of devices."""

from functools import partial

from vendors.device import PluggedIn

open_devices = partial(PluggedIn, "mlu", plugin="torch_mlu", library="cncl")
