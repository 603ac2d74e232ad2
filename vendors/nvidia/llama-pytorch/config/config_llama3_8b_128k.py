# Llama-3 8B on eight GPUs that divide each sequence of 131072 tokens, Llama-3.1's longest, between them.
extends = "config_llama3_8b"
serves = ["config_llama3_8b_128k_H100x1x8", "config_llama3_8b_128k_H200x1x8"]
seq_length = 131072
context_parallel_size = 8

# Ours: as many tokens of a step as with 512 sequences of 8192.
gradient_accumulation_steps = 32
