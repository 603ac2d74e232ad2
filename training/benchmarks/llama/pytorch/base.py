"""LLaMA-2 7B as published, one epoch, measured for speed: the base of every case config of llama:pytorch.

Source, where no other is named: FlagPerf, training/benchmarks/llama2_7b/deepspeed/ds_config.json and
config/config_A100x1x8.py beside it (8 x A100).
"Ours" is a choice of this project; docs/reference/training-benchmarks.md gives the reasons.
"""

max_epochs = 1
# By which FlagPerf counts its MFU.
nominal_parameters = 7_000_000_000
# 100 million tokens of OpenWebText, as FlagPerf's preprocessing writes them; nothing is evaluated.
train_file = "openwebtext_llama2_100M.npy"
eval_file = None

# Touvron et al. 2023 (arXiv 2307.09288), section 2.2: AdamW, betas 0.9 and 0.95, eps 1e-5, decay 0.1, clipping at 1.
optimizer = "adamw"
learning_rate = 1e-5
# There is no schedule: the rate stays.
lr_schedule = "constant"
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
eps = 1e-5
max_grad_norm = 1.0

train_batch_size = 1
eval_batch_size = 1

# FlagPerf: DeepSpeed's ZeRO stage 3, which FSDP2's shards are, in bf16.
strategy = "fsdp"
precision = "bf16"

# Ours: nothing is evaluated, so that only this tells soon that a rank has departed; it does not change results.
compare_interval_steps = 10

# Ours: activations are computed again, so that a step fits into 40 GB; the log does not change results.
activation_checkpointing = True
log_freq = 10
