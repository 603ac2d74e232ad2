# Llama-3 8B on H100, one host, eight GPUs: as many sequences per step in larger micro-batches.
extends = "config_llama3_8b"
train_batch_size = 4
gradient_accumulation_steps = 16
