# A LLaMA of 1.3 billion parameters on A100, one host, one GPU: 100 steps on data made on the fly.
num_layers = 24
hidden_size = 2048
num_attention_heads = 16
num_key_value_heads = 16
ffn_hidden_size = 5504
data = "synthetic"
train_samples = 1024
eval_samples = 16
synthetic_tokens = 1000
max_steps = 100
max_epochs = None
nominal_parameters = None
train_batch_size = 2
eval_batch_size = 2
strategy = "ddp"
# The memory estimate decides how much is computed again and whether a step is divided.
layout = "auto"
