"""GLM-Large on ReCoRD as published: every case config of glm:pytorch begins with these values.

Source, where no other is named: FlagPerf, training/benchmarks/glm/pytorch/config/_base.py and
training/nvidia/glm-pytorch/config/config_A100x1x8.py (8 x A100).
"Ours" is a choice of this project; docs/reference/training-benchmarks.md gives the reasons.
"""

init_checkpoint = "blocklm-large-blank/200000/mp_rank_00_model_states.pt"
# Fraction of samples with the right answer.
target_accuracy = 0.8
max_samples = 5553080
# FlagPerf writes it as 600 * 8 * 4.
eval_interval_samples = 19200
seed = 10483

optimizer = "adamw"
learning_rate = 1e-5
weight_decay = 0.1
max_grad_norm = 1.0
lr_schedule = "flagperf_glm"
warmup = 0.1
lr_decay_steps = 4338
min_lr_ratio = 0.1

# 8 samples per step on each device, 16 where there is one device alone.
train_batch_size = 8
eval_batch_size = 8
num_workers = 4

# Ours: bf16 needs no loss scale on A100 and later (FlagPerf: fp16); the log does not change results.
precision = "bf16"
log_freq = 20
