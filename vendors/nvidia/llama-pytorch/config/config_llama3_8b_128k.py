# Llama-3 8B on eight GPUs that divide each sequence of 131072 tokens, Llama-3.1's longest, between them.
extends = "config_llama3_8b"
serves = ["config_llama3_8b_128k_H100x1x8", "config_llama3_8b_128k_H200x1x8"]
seq_length = 131072
context_parallel_size = 8

# Ours: 100 steps of four sequences, half a million tokens, are about an hour on H100.
gradient_accumulation_steps = 4
max_steps = 100
lr_decay_steps = 100
