# One CPU host, two ranks, over gloo: a tiny GLM chooses how chains go on in less than a minute.
data = "synthetic"
train_samples = 4096
eval_samples = 256
num_layers = 2
hidden_size = 64
num_attention_heads = 4
vocab_size = 128
max_position_embeddings = 64
max_seq_length = 32
num_choices = 4
answer_length = 2
hidden_dropout = 0.0
attention_dropout = 0.0
eval_batch_size = 32
max_steps = 1000
eval_interval_samples = 640
learning_rate = 2e-3
weight_decay = 0.01
warmup = 0.02
# Instead of base.py's values, which are for the published size.
init_checkpoint = None
lr_schedule = "linear"
max_samples = None
lr_decay_steps = None
precision = "fp32"
num_workers = 0
