# One CPU host, two ranks, over gloo: a tiny BERT in Paddle finds masked tokens of chains in less than a minute.
data = "synthetic"
train_samples = 16384
eval_samples = 512
num_layers = 2
hidden_size = 64
num_attention_heads = 4
ffn_hidden_size = 128
vocab_size = 128
max_position_embeddings = 64
max_seq_length = 32
max_predictions_per_seq = 5
hidden_dropout = 0.0
attention_dropout = 0.0
train_batch_size = 32
eval_batch_size = 64
max_steps = 1500
eval_interval_samples = 3200
eval_start_samples = 12800
learning_rate = 2e-3
warmup = 0.02
log_freq = 50
# Instead of base.py's values, which are for the published size.
init_checkpoint = None
lr_schedule = "linear"
max_samples = None
