# One CPU host, two ranks, over gloo: a tiny LLaMA learns a noisy chain in seconds.
data = "synthetic"
train_samples = 4096
eval_samples = 256
num_layers = 2
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
ffn_hidden_size = 128
vocab_size = 128
seq_length = 32
train_batch_size = 32
eval_batch_size = 64
max_steps = 300
eval_interval_samples = 640
learning_rate = 2e-3
warmup = 0.05
min_lr_ratio = 0.1
target_loss = 0.6
# Instead of base.py's values, which are for the published size.
max_epochs = None
nominal_parameters = None
lr_schedule = "linear"
eps = 1e-8
precision = "fp32"
strategy = "ddp"
activation_checkpointing = False
