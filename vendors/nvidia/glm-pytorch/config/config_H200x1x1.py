# GLM-Large on H200, one host, one GPU.
# 16 samples per step in one micro-batch.
train_batch_size = 16
max_samples = 24135
