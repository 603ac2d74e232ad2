"""Uses Moore Threads' GPUs through torch_musa: nothing of them is known to differ from other modules of devices."""

from functools import partial

from vendors.device import PluggedIn

open_devices = partial(PluggedIn, "musa", plugin="torch_musa", library="mccl")
