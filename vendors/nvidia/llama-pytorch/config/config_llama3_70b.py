# Llama-3 70B on eight hosts of eight GPUs: the sizes of Meta-Llama-3-70B's config.json as published on Hugging Face.
serves = ["config_llama3_70b_H100x8x8", "config_llama3_70b_H200x8x8"]
num_layers = 80
hidden_size = 8192
num_attention_heads = 64
num_key_value_heads = 8
ffn_hidden_size = 28672
vocab_size = 128256
seq_length = 8192
norm_eps = 1e-5
rope_theta = 500000.0
nominal_parameters = 70_000_000_000

# Ours: the layers of a host share its links, four hosts are a pipeline, two of these share their states.
tensor_parallel_size = 8
sequence_parallel = True
pipeline_parallel_size = 4

# As Llama-3 8B: 300 steps, cosine to a tenth; 64 sequences of a step on each of the two pipelines.
max_epochs = None
max_steps = 300
eps = 1e-8
lr_schedule = "cosine"
lr_decay_steps = 300
min_lr_ratio = 0.1
init_std = 0.008
gradient_accumulation_steps = 64
log_freq = 1
train_file = "train.npy"

# What is computed again follows from the memory of the rank that holds most.
layout = "auto"
