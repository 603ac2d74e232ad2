# Llama-3 8B on hosts of eight GPUs: the sizes of Meta-Llama-3-8B's config.json as published on Hugging Face.
serves = ["config_llama3_8b_A100x1x8", "config_llama3_8b_H100x1x8", "config_llama3_8b_H200x1x8"]
num_layers = 32
hidden_size = 4096
num_attention_heads = 32
num_key_value_heads = 8
ffn_hidden_size = 14336
vocab_size = 128256
seq_length = 8192
norm_eps = 1e-5
rope_theta = 500000.0
nominal_parameters = 8_000_000_000

# FlagPerf, training/benchmarks/llama3_8B/megatron/pretrain_llama3.sh: 300 steps of 512 sequences, cosine to a tenth.
max_epochs = None
max_steps = 300
# Megatron's default, where LLaMA-2's is 1e-5.
eps = 1e-8
lr_schedule = "cosine"
lr_decay_steps = 300
min_lr_ratio = 0.1
init_std = 0.008
gradient_accumulation_steps = 64
log_freq = 1

# The tokens of Llama-3's tokenizer as one array of integers; FlagPerf: WuDao, in Megatron's form.
train_file = "train.npy"

# 64 sequences of a step on each GPU, in the largest micro-batches that its memory holds.
layout = "auto"
