"""BERT-Large as FlagPerf's Paddle cases train it: every case config of bert:paddle begins with these values.

Source, where no other is named: FlagPerf, training/nvidia/bert-paddle/config/config_A100x1x8.py and
training/benchmarks/bert/paddle beside it.
"Ours" is a choice of this project; docs/reference/training-benchmarks.md gives the reasons.
"""

# The checkpoint of MLPerf Training's BERT, after 28252 steps, as safetensors: docs/reference/training-benchmarks.md.
init_checkpoint = "model.ckpt-28252.safetensors"
target_mlm_accuracy = 0.67
max_samples = 4500000
max_steps = 10000
seed = 9031
# FlagPerf computes the interval. It counts the samples before a step: at the end of the first interval one step is
# missing to its eval_iter_start_samples = 150000, so that the first evaluation follows the second interval.
eval_start_samples = 300000
eval_interval_samples = 150000

# FlagPerf's keys are named after LAMB; its code takes AdamW (train/driver/trainer_adapter.py).
optimizer = "adamw"
learning_rate = 1e-4
weight_decay = 0.01
beta1 = 0.9
beta2 = 0.999
# 2000 of 10000 updates; then it falls as if there had been no warm-up. The first update has a rate of 0.
lr_schedule = "flagperf_bert_paddle"
warmup = 0.2

train_batch_size = 12
eval_batch_size = 12
gradient_accumulation_steps = 1

# FlagPerf's default: fp16 is off.
precision = "fp32"
# Ours: it does not change results.
log_freq = 20
