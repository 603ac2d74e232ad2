# Row 4 of AICB's specification 1.1: 16 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "Megatron"
model_name = "LLaMA_65B"
hidden_size = 8192
num_layers = 80
num_attention_heads = 64
seq_length = 4096
ffn_hidden_size = 28672
tensor_model_parallel_size = 8
pipeline_model_parallel = 2
enable_sequence_parallel = True
use_distributed_optimizer = True
vocab_size = 32000
epoch_num = 10
