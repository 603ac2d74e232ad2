# Row 3 of AICB's specification 1.1: 4 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "Megatron"
model_name = "GPT_22B"
hidden_size = 6144
num_layers = 48
num_attention_heads = 64
seq_length = 2048
ffn_hidden_size = 24576
tensor_model_parallel_size = 4
pipeline_model_parallel = 1
enable_sequence_parallel = False
use_distributed_optimizer = True
vocab_size = 50257
epoch_num = 10
