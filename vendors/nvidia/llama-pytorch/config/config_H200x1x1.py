# LLaMA-2 7B on H200, one host, one GPU: 100 steps on data made on the fly.
# 16 bytes per parameter leave room for one sample.
data = "synthetic"
train_samples = 1024
eval_samples = 16
synthetic_tokens = 1000
max_steps = 100
max_epochs = None
# The memory estimate decides how much is computed again.
layout = "auto"
