# LLaMA-2 7B on H100, one host, eight GPUs: two samples per step on each of them.
train_batch_size = 2
# The memory estimate decides how much is computed again and whether a step is divided.
layout = "auto"
