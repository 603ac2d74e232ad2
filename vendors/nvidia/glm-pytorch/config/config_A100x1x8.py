# GLM-Large on A100, hosts of eight GPUs.
# 8 samples per step on each device in micro-batches that fit into its memory.
serves = ["config_A100x2x8"]
train_batch_size = 4
gradient_accumulation_steps = 2
