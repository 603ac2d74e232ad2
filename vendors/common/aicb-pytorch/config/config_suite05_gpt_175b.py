# Row 5 of AICB's specification 1.1: 64 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "Megatron"
model_name = "GPT_175B"
hidden_size = 12288
num_layers = 96
num_attention_heads = 96
seq_length = 2048
ffn_hidden_size = 49152
tensor_model_parallel_size = 8
pipeline_model_parallel = 8
enable_sequence_parallel = True
use_distributed_optimizer = True
vocab_size = 50257
epoch_num = 10
