# Row 8 of AICB's specification 1.1: 1 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "DeepSpeed"
stage = 2
model_name = "LLaMA_7B"
hidden_size = 4096
num_layers = 32
num_attention_heads = 32
seq_length = 4096
ffn_hidden_size = 11008
vocab_size = 32000
reduce_bucket_size = 1_000_000_000
allgather_bucket_size = 1_000_000_000
epoch_num = 10
