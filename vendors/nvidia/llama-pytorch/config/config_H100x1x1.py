# A LLaMA of 1.3 billion parameters on H100, one host, one GPU: 100 steps on data made on the fly.
extends = "config_A100x1x1"
train_batch_size = 4
