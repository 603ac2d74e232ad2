# GLM-Large on H200, one host, one GPU.
# 16 samples a step at once.
train_batch_size = 16
