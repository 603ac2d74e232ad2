"""Uses Iluvatar's accelerators in a build of torch that calls them cuda, such as 2.1.1+corex.4.3.8."""

from functools import partial

from vendors.cuda_device import OtherCudaAccelerators

open_devices = partial(OtherCudaAccelerators, library="ixccl", build="corex")
