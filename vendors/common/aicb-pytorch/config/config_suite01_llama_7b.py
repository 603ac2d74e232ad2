# Row 1 of AICB's specification 1.1: 1 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "Megatron"
model_name = "LLaMA_7B"
hidden_size = 4096
num_layers = 32
num_attention_heads = 32
seq_length = 2048
ffn_hidden_size = 16384
tensor_model_parallel_size = 1
pipeline_model_parallel = 1
enable_sequence_parallel = False
use_distributed_optimizer = True
vocab_size = 32000
epoch_num = 10
