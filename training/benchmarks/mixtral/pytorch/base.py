"""Mixtral 8x7B as FlagPerf trains it, measured for speed: the base of every case config of mixtral:pytorch.

Source, where no other is named: FlagPerf, training/benchmarks/mixtral_8x7B/megatron/megatron_main.sh, and
config/config_H100x4x8.py of its nvidia/mixtral_8x7B-megatron. "Ours" is a choice of this project.
"""

# FlagPerf: 100 steps of 512 sequences (4 Mi tokens); a case divides them over its ranks.
max_steps = 100
seq_length = 8192
# The tokens of Mistral's tokenizer as one array of integers; FlagPerf: WuDao, in Megatron's form.
train_file = "train.npy"
eval_file = None

optimizer = "adamw"
learning_rate = 1e-5
lr_schedule = "cosine"
lr_decay_steps = 100
min_lr_ratio = 0.1
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
max_grad_norm = 1.0
init_std = 0.006

train_batch_size = 1
eval_batch_size = 1
precision = "bf16"
strategy = "fsdp"
log_freq = 1

# Ours: the loss that balances experts is transformers', over all layers together; FlagPerf's is Megatron's, of each
# layer with 1e-2, and it attends to a window of 4096 tokens where its Megatron is patched.
router_aux_loss_coef = 0.02

# Ours: nothing is evaluated, so that only this tells soon that a rank has departed; it does not change results.
compare_interval_steps = 10
