# LLaMA-2 7B, 100 steps on data made on the fly. The memory estimate decides how much is computed again.
data = "synthetic"
train_samples = 1024
eval_samples = 16
synthetic_tokens = 1000
max_steps = 100
max_epochs = None
layout = "auto"
