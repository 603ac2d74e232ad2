# GLM-Large on A100, one host, one GPU.
# 16 samples per step in micro-batches that fit into its memory.
train_batch_size = 4
gradient_accumulation_steps = 4
max_samples = 24135
