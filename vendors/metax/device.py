"""Uses MetaX's GPUs in a build of torch that calls them cuda, such as 2.8.0+metax3.5.3.9."""

from functools import partial

from vendors.cuda_device import OtherCudaAccelerators

open_devices = partial(OtherCudaAccelerators, library="mccl", build="metax")
