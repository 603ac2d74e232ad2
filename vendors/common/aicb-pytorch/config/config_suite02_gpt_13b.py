# Row 2 of AICB's specification 1.1: 2 ranks or a multiple. AICB runs ten iterations.
dialect = "aicb"
frame = "Megatron"
model_name = "GPT_13B"
hidden_size = 5120
num_layers = 40
num_attention_heads = 40
seq_length = 2048
ffn_hidden_size = 20480
tensor_model_parallel_size = 2
pipeline_model_parallel = 1
enable_sequence_parallel = True
use_distributed_optimizer = True
vocab_size = 50257
epoch_num = 10
