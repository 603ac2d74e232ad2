# GLM-Large on Ascend 910B, one host, one device.
# 16 samples per step in micro-batches that fit into its memory.
gradient_accumulation_steps = 2
max_samples = 24135
