# One CPU host, two ranks, over gloo: a tiny Mixtral, half of whose experts are on each rank, learns a noisy chain.
data = "synthetic"
train_samples = 4096
eval_samples = 256
num_layers = 2
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
ffn_hidden_size = 64
vocab_size = 128
seq_length = 32
expert_parallel_size = 2
train_batch_size = 32
eval_batch_size = 64
max_steps = 200
eval_interval_samples = 640
learning_rate = 2e-3
warmup = 0.05
target_loss = 0.6
# Instead of base.py's values, which are for the published size.
lr_schedule = "linear"
lr_decay_steps = None
init_std = 0.02
precision = "fp32"
log_freq = 10
