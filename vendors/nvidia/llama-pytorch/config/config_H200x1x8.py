# LLaMA-2 7B on H200, one host, eight GPUs.
train_batch_size = 2
activation_checkpointing = False
