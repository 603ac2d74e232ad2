# Row 9 of AICB's specification 1.1: 1 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "DeepSpeed"
stage = 3
model_name = "LLaMA_65B"
hidden_size = 8192
num_layers = 80
num_attention_heads = 64
seq_length = 4096
ffn_hidden_size = 28672
vocab_size = 32000
reduce_bucket_size = 1_000_000_000
prefetch_bucket_size = 1_000_000_000
max_live_parameters = 600_000_000
param_persistence_threshold = 1_000_000
epoch_num = 10
