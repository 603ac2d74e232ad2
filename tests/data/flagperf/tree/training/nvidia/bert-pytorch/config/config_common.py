import torch

ddp_type: str = "apex"
dwu_group_size: int = 0


def get_gpu_mem():
    return torch.cuda.get_device_properties("cuda:0").total_memory / 1e9
