# CPM-1-medium on H100 and H200, two hosts, eight GPUs each.
# 192 samples per step on each device, as FlagPerf's config_A100x2x8.py has it.
serves = ["config_H200x2x8"]
train_batch_size = 192
eval_batch_size = 192
max_steps = 2000
max_samples = 43912600
