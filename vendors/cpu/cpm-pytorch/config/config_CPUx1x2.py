# One CPU host, two ranks, over gloo: a tiny CPM learns a noisy chain in seconds.
data = "synthetic"
train_samples = 4096
eval_samples = 256
num_layers = 2
hidden_size = 64
num_attention_heads = 4
vocab_size = 128
max_position_embeddings = 64
seq_length = 32
hidden_dropout = 0.0
attention_dropout = 0.0
eval_batch_size = 64
max_steps = 300
eval_interval_samples = 640
learning_rate = 2e-3
warmup = 0.05
log_freq = 10
# An untrained model has an embedding_average of 0.8 or more: only the loss shows whether it learns.
target_loss = 0.6
# Instead of base.py's values, which are for the published size.
init_checkpoint = None
lr_schedule = "linear"
max_samples = None
precision = "fp32"
init_loss_scale = 65536.0
num_workers = 0
