dist_backend = "nccl"
train_batch_size = 16
