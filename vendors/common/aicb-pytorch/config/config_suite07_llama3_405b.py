# Row 7 of AICB's specification 1.1: 128 ranks or a multiple. AICB runs ten iterations.
# 128 layers: the specification's 126 cannot be divided over 16 pipeline stages.
dialect = "aicb"
frame = "Megatron"
model_name = "Llama3_405B"
hidden_size = 16384
num_layers = 128
num_attention_heads = 128
seq_length = 8192
ffn_hidden_size = 53248
tensor_model_parallel_size = 8
pipeline_model_parallel = 16
enable_sequence_parallel = True
use_distributed_optimizer = True
vocab_size = 128256
epoch_num = 10
