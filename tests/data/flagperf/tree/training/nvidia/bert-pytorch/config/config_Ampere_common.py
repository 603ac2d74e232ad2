import os

from config_common import *
from torch.cuda.amp import GradScaler

grad_scaler = GradScaler(init_scale=float(os.getenv("INIT_LOSS_SCALE", 2**20)), growth_interval=2000)
fp16 = True
dist_backend = "nccl"
train_batch_size = 24
fused_mha = True
unpad = True
