# LLaMA-2 7B on H100, one host, eight GPUs.
train_batch_size = 2
