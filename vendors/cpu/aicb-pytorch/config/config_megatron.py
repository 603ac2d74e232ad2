# A tiny GPT with tensor and sequence parallelism: 2 ranks or 4, seconds on a laptop.
dialect = "aicb"
frame = "Megatron"
hidden_size = 256
num_layers = 4
num_attention_heads = 4
seq_length = 128
vocab_size = 1024
tensor_model_parallel_size = 2
enable_sequence_parallel = True
use_distributed_optimizer = True
epoch_num = 5
