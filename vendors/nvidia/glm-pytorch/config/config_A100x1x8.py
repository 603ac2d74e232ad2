# GLM-Large on A100, one host, eight GPUs.
# 8 samples per step on each device in micro-batches that fit into its memory.
train_batch_size = 4
gradient_accumulation_steps = 2
