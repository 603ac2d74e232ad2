# LLaMA-2 7B on H100 and H200, hosts of eight GPUs: two samples per step on each of them.
serves = ["config_H100x2x8", "config_H200x1x8", "config_H200x2x8"]
train_batch_size = 2
# The memory estimate decides how much is computed again and whether a step is divided.
layout = "auto"
