# CPM-1-medium on A100, two hosts, eight GPUs each.
# 192 samples per step on each device, as FlagPerf's config_A100x2x8.py has it, in two micro-batches.
train_batch_size = 96
gradient_accumulation_steps = 2
eval_batch_size = 192
max_steps = 2000
max_samples = 43912600
