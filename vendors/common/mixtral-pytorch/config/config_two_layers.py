# Two layers of Mixtral 8x7B with all of their experts, 100 steps on data made on the fly.
num_layers = 2
data = "synthetic"
train_samples = 1024
eval_samples = 16
synthetic_tokens = 1000
layout = "auto"
